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

{{- /* The namespace of the programs and of their own objects. */}}
{{- define "core-provider.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* The namespace field of an object, if it is not the release's namespace. */}}
{{- define "core-provider.placed" }}
{{- with .Values.namespaceOverride }}
  namespace: {{ . }}
{{- end }}
{{- end }}

{{- /* The labels of every object; selectors use the component to find a program's objects. */}}
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

{{- /* A tag as a string: --set and YAML read a tag of digits as a number. */}}
{{- define "core-provider.tag" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if not (kindIs "invalid" .) }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* A released chart pins its images: digests.json has the digest of each program. If a tag is set, the tag is used. */}}
{{- define "core-provider.image" -}}
{{- $registry := dig "imageRegistry" "" (.root.Values.global | default dict) | default .root.Values.image.registry }}
{{- $tag := include "core-provider.tag" .root.Values.image.tag }}
{{- $digest := get (fromJson (.root.Files.Get "digests.json")) .program }}
{{- $released := printf "%s%s" .root.Chart.AppVersion (ternary (printf "@%s" $digest) "" (ne $digest "")) }}
{{- ternary .image "" (kindIs "string" .image) | default (printf "%s/%s:%s" $registry .program ($tag | default $released)) }}
{{- end }}

{{- define "core-provider.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The environment variables for pushing metrics and traces, as JSON. */}}
{{- define "core-provider.otel" -}}
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

{{- /*
Values of Krateo's chart that have no meaning here: the default, which is accepted, and what to write instead of any other.
*/}}
{{- define "core-provider.withoutMeaning" -}}
{{- range $prefix, $program := dict "" "coreProvider" "chartInspector." "chartInspector" }}
{{ $prefix }}serviceAccount.create: {same: true, now: "nothing: the chart makes its ServiceAccounts"}
{{ $prefix }}serviceAccount.automount: {same: true, now: "nothing: the programs talk to the API server"}
{{ $prefix }}serviceAccount.annotations: {now: "nothing: annotate the ServiceAccount itself"}
{{ $prefix }}serviceAccount.name: {now: "fullnameOverride, by which it is called"}
{{ $prefix }}service.type: {same: ClusterIP, now: "nothing: the Services are for the cluster alone"}
{{ $prefix }}service.port: {same: 80, now: "nothing: the ports are 9443 and 8081"}
{{ $prefix }}livenessProbe: {now: "nothing: the chart has probes"}
{{ $prefix }}readinessProbe: {now: "nothing: the chart has probes"}
{{ $prefix }}autoscaling.enabled: {same: false, now: "{{ $program }}.replicaCount"}
{{ $prefix }}volumes: {now: "nothing: the programs keep no files"}
{{ $prefix }}volumeMounts: {now: "nothing: the programs keep no files"}
{{- end }}
ingress.enabled: {same: false, now: "nothing: nothing of it is for outside of the cluster"}
{{- range list "className" "annotations" "tls" }}
ingress.{{ . }}: {now: "nothing: nothing of it is for outside of the cluster"}
{{- end }}
ingress.hosts: {same: [{host: chart-example.local, paths: [{path: /, pathType: ImplementationSpecific}]}], now: "nothing: nothing of it is for outside of the cluster"}
core-provider-crd: {now: "nothing: the type of definitions comes with this chart"}
{{- range list "cdc" "chartInspector" }}
{{ . }}.image.pullPolicy: {same: IfNotPresent, now: "image.pullPolicy, which is for all programs"}
{{- end }}
chartInspector.imagePullSecrets: {now: "imagePullSecrets, which is for all programs"}
chartInspector.nameOverride: {now: "nameOverride"}
chartInspector.fullnameOverride: {now: "fullnameOverride"}
chartInspector.podSecurityContext: {now: "podSecurityContext, which is for all programs"}
chartInspector.securityContext: {now: "securityContext, which is for all programs"}
{{- range list "imagePullSecrets" "podAnnotations" "podLabels" "podSecurityContext" "securityContext" "resources" "livenessProbe" "readinessProbe" "volumes" "volumeMounts" "nodeSelector" "tolerations" "affinity" }}
cdc.{{ . }}: {now: "cdc.assets, with a template cdc-deployment/deployment.yaml"}
{{- end }}
{{- range list "serviceAccount.annotations" "serviceAccount.name" "nameOverride" "fullnameOverride" }}
cdc.{{ . }}: {now: "nothing: controllers are called by their type"}
{{- end }}
cdc.serviceAccount.create: {same: true, now: "nothing: each controller has a ServiceAccount of its own"}
cdc.serviceAccount.automount: {same: true, now: "nothing: controllers talk to the API server"}
cdc.autoscaling.enabled: {same: false, now: "cdc.replicas"}
{{- end }}

{{- /* Refuses values of Krateo's chart that would otherwise be ignored silently. Run once for each render. */}}
{{- define "core-provider.checkValues" -}}
{{- $lost := list }}
{{- range $path, $rule := include "core-provider.withoutMeaning" . | fromYaml }}
{{- $value := $.Values }}
{{- range $part := splitList "." $path }}
{{- if kindIs "map" $value }}
{{- $value = get $value $part }}
{{- else }}
{{- $value = "" }}
{{- end }}
{{- end }}
{{- if not (has (toJson $value) (list "null" "\"\"" "{}" "[]" (get $rule "same" | toJson))) }}
{{- $lost = append $lost (printf "%s: write %s" $path $rule.now) }}
{{- end }}
{{- end }}
{{- range $path, $image := dict "image" .Values.image "chartInspector.image" .Values.chartInspector.image "cdc.image" .Values.cdc.image }}
{{- $repository := "" }}
{{- if kindIs "map" $image }}
{{- $repository = get $image "repository" }}
{{- end }}
{{- if and $repository (not (hasPrefix "ghcr.io/krateoplatformops/" $repository)) }}
{{- $now := ternary "image.registry" (printf "%s as one string, or image.registry" $path) (eq $path "image") }}
{{- $lost = append $lost (printf "%s.repository: write %s; %s is an image of Krateo's program" $path $now $repository) }}
{{- end }}
{{- if and (kindIs "map" $image) (ne $path "image") }}
{{- $tag := get $image "tag" | toString }}
{{- if not (has $tag (list "" "1.0.0")) }}
{{- $lost = append $lost (printf "%s.tag: write nothing, or %s as one string with registry and tag; %s is a version of Krateo's program" $path $path $tag) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.image.repository .Values.image.tag }}
{{- $lost = append $lost (printf "image.tag: write nothing, %s is a version of Krateo's program" (include "core-provider.tag" .Values.image.tag)) }}
{{- end }}
{{- with $lost }}
{{- fail (printf "these values are of Krateo's chart:\n- %s" (join "\n- " .)) }}
{{- end }}
{{- end }}

{{- /* Environment variables, as strings, from several maps: the last one wins. */}}
{{- define "core-provider.environment" -}}
{{- $env := dict }}
{{- range . }}
{{- range $name, $value := . }}
{{- $_ := set $env $name (toString $value) }}
{{- end }}
{{- end }}
{{- toJson $env }}
{{- end }}
