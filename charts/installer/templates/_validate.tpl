{{- /* Refuses values that cannot work before anything is installed. `kco installer check` prints the same messages, all of
       them at once. */}}
{{- define "installer.validate" -}}
{{- if dig "compositionId" "" (.Values.global | default dict) }}
{{- include "installer.validateComposition" . }}
{{- else if include "installer.isBootstrap" . }}
{{- include "installer.validateBootstrap" . }}
{{- end }}
{{- with .Values.registryAuth }}
{{- $ref := .passwordRef | default dict }}
{{- if and .enabled (not (and .username $ref.name $ref.key)) }}
{{- fail "registryAuth is enabled, and takes username, passwordRef.name and passwordRef.key: set them" }}
{{- end }}
{{- end }}
{{- $all := dict }}
{{- range $index, $c := .Values.components }}
{{- if not $c.name }}
{{- fail (printf "entry %d of components has no name: give it name, kind, version and tier" (add1 $index)) }}
{{- end }}
{{- range list "kind" "version" "tier" }}
{{- if not (get $c .) }}
{{- fail (printf "component %q has no %s: give it name, kind, version and tier" $c.name .) }}
{{- end }}
{{- end }}
{{- $_ := set $all $c.name $c }}
{{- end }}
{{- $before := dict }}
{{- $kinds := dict }}
{{- range $c := .Values.components }}
{{- if hasKey $before $c.name }}
{{- fail (printf "component %q is listed twice: give each component a name of its own" $c.name) }}
{{- end }}
{{- with get $kinds $c.kind }}
{{- fail (printf "components %q and %q have the same kind %s: give each component a kind of its own" . $c.name $c.kind) }}
{{- end }}
{{- include "installer.validateFields" $c }}
{{- include "installer.validateDeps" (dict "root" $ "component" $c "before" $before "all" $all) }}
{{- $_ := set $before $c.name $c }}
{{- $_ := set $kinds $c.kind $c.name }}
{{- end }}
{{- range $name, $_ := .Values.componentValues }}
{{- if not (hasKey $all $name) }}
{{- fail (printf "componentValues has %q, and no component has this name: correct the name or remove it" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* More people may edit an Installer object than may install the release. So an Installer must not turn on parts that come
       with the rights of whoever installs the platform. */}}
{{- define "installer.validateComposition" -}}
{{- range $key := list "coreProvider" "certManager" "clickhouseOperator" "mongodbOperator" }}
{{- if dig $key "enabled" false $.Values.bootstrap }}
{{- fail (printf "the Installer object has bootstrap.%s.enabled: set it to false in its spec; this part of the platform is installed by the release alone" $key) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "installer.validateBootstrap" -}}
{{- $namespace := include "installer.namespace" . }}
{{- if ne $namespace .Release.Namespace }}
{{- fail (printf "the release is in namespace %q, and components in namespaces.krateo %q: install with --namespace %s, or set namespaces.krateo to %s" .Release.Namespace $namespace $namespace .Release.Namespace) }}
{{- end }}
{{- $platform := include "installer.platformNamespace" . }}
{{- $closed := dig "coreProvider" "closedNamespaces" list (index .Values "core-provider" | default dict) }}
{{- if and (ne $platform $namespace) (not (has $platform $closed)) }}
{{- fail (printf "the engine is in namespace %q, and core-provider.coreProvider.closedNamespaces does not close it: add %q there" $platform $platform) }}
{{- end }}
{{- end }}

{{- define "installer.validateFields" -}}
{{- $version := toString .version }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$" .name) }}
{{- fail (printf "component %q cannot have this name: use lower-case letters, digits and '-', at most 53 characters" .name) }}
{{- end }}
{{- if eq .name "installer" }}
{{- fail "a component cannot be called \"installer\", which is the platform's own name: choose another one" }}
{{- end }}
{{- if not (regexMatch "^[A-Z][A-Za-z0-9]*$" .kind) }}
{{- fail (printf "component %q has kind %q: a kind begins with a capital letter and has letters and digits only" .name .kind) }}
{{- end }}
{{- if not (regexMatch "^v?[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$" $version) }}
{{- fail (printf "component %q has version %q: pin an exact one, such as \"1.2.3\"" .name $version) }}
{{- end }}
{{- if not (has .tier (list "platform" "observability")) }}
{{- fail (printf "component %q has tier %q: use platform or observability" .name .tier) }}
{{- end }}
{{- if and .digest (not (regexMatch "^sha256:[0-9a-f]{64}$" .digest)) }}
{{- fail (printf "component %q has digest %q: write sha256: and 64 hexadecimal digits" .name .digest) }}
{{- end }}
{{- if and .configKeys (not (and .exposePort .svcMatch)) }}
{{- fail (printf "component %q has configKeys, and its address takes exposePort and svcMatch: add them" .name) }}
{{- end }}
{{- end }}

{{- /* Takes root, component, all components by name, and those that are listed before it. */}}
{{- define "installer.validateDeps" -}}
{{- $c := .component }}
{{- $enabled := include "installer.featureEnabled" (dict "root" .root "feature" $c.feature) }}
{{- range $name := $c.deps }}
{{- if eq $name $c.name }}
{{- fail (printf "component %q depends on itself: remove %q from its deps" $c.name $name) }}
{{- else if not (hasKey $.all $name) }}
{{- fail (printf "component %q depends on %q, which is not in components: add it before %q, or correct the name" $c.name $name $c.name) }}
{{- else if not (hasKey $.before $name) }}
{{- fail (printf "component %q depends on %q, which is listed after it: list %q before %q; where each needs the other, remove one of these deps" $c.name $name $name $c.name) }}
{{- end }}
{{- $feature := (get $.before $name).feature }}
{{- if and $enabled (not (include "installer.featureEnabled" (dict "root" $.root "feature" $feature))) }}
{{- $otherwise := printf "remove %q from components" $c.name }}
{{- if and $c.feature (not (has $c.feature (list "composableportal" "composableoperations"))) }}
{{- $otherwise = printf "features.%s to false" $c.feature }}
{{- end }}
{{- fail (printf "component %q depends on %q, which features.%s turns off: set features.%s to true, or %s" $c.name $name $feature $feature $otherwise) }}
{{- end }}
{{- end }}
{{- end }}
