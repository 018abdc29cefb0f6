{{- /* Not empty in bootstrap mode, when Helm installs the engine; empty in composition mode, when the engine renders. */}}
{{- define "installer.isBootstrap" -}}
{{- if .Values.bootstrap.coreProvider.enabled }}true{{ end }}
{{- end }}

{{- /* The namespace of definitions and compositions. */}}
{{- define "installer.namespace" -}}
{{- default .Release.Namespace .Values.namespaces.krateo }}
{{- end }}

{{- /* The namespace of the engine. */}}
{{- define "installer.platformNamespace" -}}
{{- default .Release.Namespace (index .Values "core-provider" | default dict).namespaceOverride }}
{{- end }}

{{- /* Not empty when this release creates and deletes the namespace of the engine. */}}
{{- define "installer.makesNamespace" -}}
{{- if and .Values.bootstrap.platformNamespace.create (ne (include "installer.platformNamespace" .) .Release.Namespace) }}true{{ end }}
{{- end }}

{{- define "installer.labels" -}}
app.kubernetes.io/name: installer
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: krateoplatformops
{{- end }}

{{- /* The name under which the version of a chart is served: v1-2-3 for 1.2.3. */}}
{{- define "installer.servedVersion" -}}
v{{ toString . | lower | replace "." "-" | replace "+" "-" }}
{{- end }}

{{- define "installer.apiVersion" -}}
composition.krateo.io/{{ include "installer.servedVersion" . }}
{{- end }}

{{- /* Not empty when a feature is on. Takes root and feature. */}}
{{- define "installer.featureEnabled" -}}
{{- if or (not .feature) (has .feature (list "composableportal" "composableoperations")) }}true
{{- else if get (.root.Values.features | default dict) .feature }}true
{{- end }}
{{- end }}

{{- /* spec.chart of a definition, as JSON. Takes root, chart, version; optional are repo (an OCI folder), chartRepo and digest. */}}
{{- define "installer.chart" -}}
{{- $auth := .root.Values.registryAuth | default dict }}
{{- $repo := .repo | default .root.Values.ociRepo | trimSuffix "/" }}
{{- $chart := dict "url" (printf "%s/%s" $repo .chart) "version" (toString .version) }}
{{- with .chartRepo }}
{{- $_ := set $chart "repo" . }}
{{- end }}
{{- with .digest }}
{{- $_ := set $chart "digest" . }}
{{- end }}
{{- range list "insecureSkipVerifyTLS" "plainHTTP" }}
{{- if get $auth . }}
{{- $_ := set $chart . true }}
{{- end }}
{{- end }}
{{- if $auth.enabled }}
{{- $ref := $auth.passwordRef | default dict }}
{{- $namespace := $ref.namespace | default (include "installer.namespace" .root) }}
{{- $password := dict "name" $ref.name "namespace" $namespace "key" $ref.key }}
{{- $_ := set $chart "credentials" (dict "username" $auth.username "passwordRef" $password) }}
{{- end }}
{{- toJson $chart }}
{{- end }}

{{- /* spec.chart of a component's definition. Takes root and component. */}}
{{- define "installer.componentChart" -}}
{{- $c := .component }}
{{- include "installer.chart" (dict "root" .root "chart" ($c.chart | default $c.name) "version" $c.version "repo" $c.repo "chartRepo" $c.chartRepo "digest" $c.digest) }}
{{- end }}

{{- /* What an admin allows a component's releases: annotations of its definition, as JSON. Takes the component. */}}
{{- define "installer.consent" -}}
{{- $allow := .allow | default dict }}
{{- $annotations := dict }}
{{- with $allow.namespaces }}
{{- $_ := set $annotations "krateo.io/allowed-namespaces" (join "," .) }}
{{- end }}
{{- with $allow.kinds }}
{{- $_ := set $annotations "krateo.io/allowed-kinds" (join "," .) }}
{{- end }}
{{- if $allow.chartRBAC }}
{{- $_ := set $annotations "krateo.io/allow-chart-rbac" "true" }}
{{- end }}
{{- toJson $annotations }}
{{- end }}

{{- /* The definitions that the Installer's controller may write, with what they may be allowed, as JSON: one entry for each
       component, from the same values as its definition. */}}
{{- define "installer.allowedDefinitions" -}}
{{- $entries := list }}
{{- range .Values.components }}
{{- $chart := include "installer.componentChart" (dict "root" $ "component" .) | fromJson }}
{{- $entry := dict "name" .name "namespace" (include "installer.namespace" $) "kind" .kind }}
{{- range list "url" "version" "repo" "digest" "insecureSkipVerifyTLS" "plainHTTP" }}
{{- if hasKey $chart . }}
{{- $_ := set $entry . (get $chart .) }}
{{- end }}
{{- end }}
{{- with include "installer.consent" . | fromJson }}
{{- $_ := set $entry "annotations" . }}
{{- end }}
{{- $entries = append $entries $entry }}
{{- end }}
{{- toJson $entries }}
{{- end }}

{{- /* The plurals that a kind may be served as, as JSON: a right to one that does not exist is harmless. Irregular plurals
       cannot be computed here, so a component with one is not removed in order by the teardown. */}}
{{- define "installer.resources" -}}
{{- $kind := lower . }}
{{- if hasSuffix "y" $kind }}
{{- list (printf "%sies" (trimSuffix "y" $kind)) (printf "%ss" $kind) | toJson }}
{{- else if hasSuffix "s" $kind }}
{{- list $kind (printf "%ses" $kind) | toJson }}
{{- else if regexMatch "(x|ch|sh|z|o)$" $kind }}
{{- list (printf "%ses" $kind) (printf "%ss" $kind) | toJson }}
{{- else }}
{{- list (printf "%ss" $kind) | toJson }}
{{- end }}
{{- end }}

{{- /* A rule that allows reading the compositions of all components. */}}
{{- define "installer.readCompositions" -}}
{{- $resources := list }}
{{- range .Values.components }}
{{- $resources = concat $resources (include "installer.resources" .kind | fromJsonArray) }}
{{- end }}
{{- with $resources }}
- apiGroups: ["composition.krateo.io"]
  resources:
    {{- toYaml . | nindent 4 }}
  verbs: ["get", "list", "watch"]
{{- end }}
{{- end }}

{{- /* The registry of the hooks' image. */}}
{{- define "installer.imageRegistry" -}}
{{- (.Values.global | default dict).imageRegistry | default .Values.hooks.image.registry }}
{{- end }}

{{- /* A tag as a string: --set and YAML read a tag of digits as a number. */}}
{{- define "installer.tag" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if not (kindIs "invalid" .) }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* Annotations of a hook. Takes event and weight. */}}
{{- define "installer.hookAnnotations" -}}
helm.sh/hook: {{ .event }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* A Job that runs a hook of kco. Takes root, name, namespace, account, arguments, event, weight, backoffLimit,
       restartPolicy, deadline (seconds), and, to be mounted at /etc/installer, configMap. */}}
{{- define "installer.hook" -}}
{{- $image := .root.Values.hooks.image }}
{{- $repository := $image.repository }}
{{- with include "installer.imageRegistry" .root }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}
{{- end }}
{{- /* A released chart pins its image: digests.json has the digest. If a tag is set, the tag is used. */}}
{{- $digest := get (fromJson (.root.Files.Get "digests.json")) $image.repository }}
{{- $released := printf "%s%s" .root.Chart.AppVersion (ternary (printf "@%s" $digest) "" (ne $digest "")) }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "installer.labels" .root | nindent 4 }}
  annotations:
    {{- include "installer.hookAnnotations" . | nindent 4 }}
    {{- if include "installer.isBootstrap" .root }}
    # Helm prints the Job's output to the person who installs or uninstalls.
    helm.sh/hook-output-log-policy: hook-failed
    {{- end }}
spec:
  backoffLimit: {{ .backoffLimit }}
  activeDeadlineSeconds: {{ .deadline }}
  template:
    metadata:
      labels:
        {{- include "installer.labels" .root | nindent 8 }}
    spec:
      serviceAccountName: {{ .account }}
      restartPolicy: {{ .restartPolicy }}
      {{- with .root.Values.hooks.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: kco
          image: {{ printf "%s:%s" $repository (include "installer.tag" $image.tag | default $released) | quote }}
          imagePullPolicy: {{ $image.pullPolicy }}
          args: {{ concat (list "installer" "hook") .arguments | toJson }}
          env:
            - name: HOME
              value: /tmp
          resources:
            {{- toYaml .root.Values.hooks.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            {{- if .configMap }}
            - name: installer
              mountPath: /etc/installer
              readOnly: true
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- with .configMap }}
        - name: installer
          configMap:
            name: {{ . }}
        {{- end }}
{{- end }}

{{- /* The Installer object: the values of this release that are about components, with everything in bootstrap off. */}}
{{- define "installer.selfCR" -}}
{{- $spec := pick .Values "ociRepo" "installDefinitions" "namespaces" "exposure" "features" "secrets" "vertexAI" "hitlApproval" "componentValues" "components" "registryAuth" }}
{{- $bootstrap := dict }}
{{- range list "coreProvider" "certManager" "clickhouseOperator" "mongodbOperator" "kagent" }}
{{- $_ := set $bootstrap . (dict "enabled" false) }}
{{- end }}
{{- $_ := set $spec "bootstrap" $bootstrap }}
{{- $tag := include "installer.tag" .Values.hooks.image.tag }}
{{- $image := merge (dict "registry" (include "installer.imageRegistry" .) "tag" $tag) .Values.hooks.image }}
{{- $_ := set $spec "hooks" (merge (dict "image" $image) .Values.hooks) }}
{{- with (.Values.global | default dict).imageRegistry }}
{{- $_ := set $spec "global" (dict "imageRegistry" .) }}
{{- end }}
apiVersion: {{ include "installer.apiVersion" .Chart.Version }}
kind: Installer
metadata:
  name: installer
  namespace: {{ include "installer.namespace" . }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}
