{{- /* The name is one for all of a cluster: nodes find the service by its port, and there is one of each. */}}
{{- define "join-service.labels" -}}
{{ include "join-service.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: krateoplatformops
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "join-service.selectorLabels" -}}
app.kubernetes.io/name: join-service
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: join-service
{{- end }}

{{- define "join-service.image" -}}
{{- $registry := dig "imageRegistry" "" (.Values.global | default dict) | default .Values.image.registry }}
{{- .Values.image.name | default (printf "%s/join-service:%s" $registry (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end }}
