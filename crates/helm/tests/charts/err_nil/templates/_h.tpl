{{ define "t" -}}
	{{ .Values.nope.b.c }}
{{- end }}