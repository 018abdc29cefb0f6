{{- define "multicluster-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "multicluster-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "multicluster-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The labels of every object. */}}
{{- define "multicluster-operator.labels" -}}
{{ include "multicluster-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: krateoplatformops
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "multicluster-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "multicluster-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: multicluster-operator
{{- end }}

{{- /* A tag as a string: --set and YAML read a tag of digits as a number. */}}
{{- define "multicluster-operator.tag" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if not (kindIs "invalid" .) }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* A released chart pins its image: digests.json has the digest. If a tag is set, the tag is used. */}}
{{- define "multicluster-operator.image" -}}
{{- $registry := dig "imageRegistry" "" (.Values.global | default dict) | default .Values.image.registry }}
{{- $tag := include "multicluster-operator.tag" .Values.image.tag }}
{{- $digest := get (fromJson (.Files.Get "digests.json")) "multicluster-operator" }}
{{- $released := printf "%s%s" .Chart.AppVersion (ternary (printf "@%s" $digest) "" (ne $digest "")) }}
{{- .Values.image.name | default (printf "%s/multicluster-operator:%s" $registry ($tag | default $released)) }}
{{- end }}

{{- define "multicluster-operator.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The environment variables for pushing metrics and traces, as JSON. */}}
{{- define "multicluster-operator.otel" -}}
{{- $env := dict }}
{{- with .Values.otel }}
{{- if .enabled }}
{{- $_ := set $env "OTEL_ENABLED" "true" }}
{{- $_ := set $env "OTEL_EXPORT_INTERVAL" (toString .exportInterval) }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" (required "otel.enabled needs otel.endpoint, the URL of a collector" .endpoint) }}
{{- end }}
{{- if .traces }}
{{- $_ := set $env "OTEL_TRACES_EXPORTER" "otlp" }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" (required "otel.traces needs otel.endpoint, the URL of a collector" .endpoint) }}
{{- end }}
{{- end }}
{{- toJson $env }}
{{- end }}
