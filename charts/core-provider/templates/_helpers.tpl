{{- define "core-provider.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "core-provider.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "core-provider.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where the programs run, with all that they keep to themselves. */}}
{{- define "core-provider.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* The namespace of an object, where it is another than the release's. */}}
{{- define "core-provider.placed" }}
{{- with .Values.namespaceOverride }}
  namespace: {{ . }}
{{- end }}
{{- end }}

{{- /* The labels of every object; the component is what a program's objects are selected by. */}}
{{- define "core-provider.labels" -}}
{{ include "core-provider.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: krateoplatformops
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "core-provider.selectorLabels" -}}
app.kubernetes.io/name: {{ include "core-provider.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "core-provider.image" -}}
{{- $registry := dig "imageRegistry" "" (.root.Values.global | default dict) | default .root.Values.image.registry }}
{{- .image | default (printf "%s/%s:%s" $registry .program (.root.Values.image.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{- define "core-provider.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where figures are pushed to, as environment variables in JSON. */}}
{{- define "core-provider.otel" -}}
{{- $env := dict }}
{{- with .Values.otel }}
{{- if .enabled }}
{{- $_ := set $env "OTEL_ENABLED" "true" }}
{{- $_ := set $env "OTEL_EXPORT_INTERVAL" (toString .exportInterval) }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" (required "otel.enabled takes otel.endpoint, the URL of a collector" .endpoint) }}
{{- end }}
{{- end }}
{{- toJson $env }}
{{- end }}
