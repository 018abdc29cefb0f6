{{- /* There can only be one release per cluster, so the name is fixed: nodes find the service by its node port. */}}
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

{{- /* A tag as a string: --set and YAML read a tag of digits as a number. */}}
{{- define "join-service.tag" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if not (kindIs "invalid" .) }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* A released chart pins its image: digests.json has the digest. If a tag is set, the tag is used. */}}
{{- define "join-service.image" -}}
{{- $registry := dig "imageRegistry" "" (.Values.global | default dict) | default .Values.image.registry }}
{{- $tag := include "join-service.tag" .Values.image.tag }}
{{- $digest := get (fromJson (.Files.Get "digests.json")) "join-service" }}
{{- $released := printf "%s%s" .Chart.AppVersion (ternary (printf "@%s" $digest) "" (ne $digest "")) }}
{{- .Values.image.name | default (printf "%s/join-service:%s" $registry ($tag | default $released)) }}
{{- end }}
