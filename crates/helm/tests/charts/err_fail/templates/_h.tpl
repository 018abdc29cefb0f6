{{ define "outer" }}
  {{ include "inner" . }}{{ end }}{{ define "inner" }}{{ fail "no\ngood" }}{{ end }}