{{ define "own" }}from a {{ .Chart.Name }}{{ end }}{{ define "shared" }}parent{{ end }}
{{ define "empty" }}not empty{{ end }}