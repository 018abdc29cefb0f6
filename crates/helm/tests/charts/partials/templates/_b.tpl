{{ define "own" }}from b{{ end }}
{{ define "empty" }}  {{/* nothing */}}
{{ end }}