{{- /* What is rendered of each component, given what the cluster has: name -> definition (a boolean) and composition (the
       version it is written through; empty: it is not rendered), as JSON.

       A composition is made once its type is served in the wanted version and everything that it depends on is Ready. Once
       it is there it is rendered, whatever becomes of what it depends on: what is left out of a manifest is removed. While
       its type gets another version, it is rendered in the one that it has. What is turned off goes from the leaves: a
       composition stays for as long as one that depends on it is there, a definition for as long as its composition is.

       Types are listed once, and only then objects of types that are served are looked up: anything else is an error. */}}
{{- define "installer.plan" -}}
{{- /* All templates of a chart share their root, so both passes go by one list. */}}
{{- if not (hasKey . "InstallerPlan") }}
{{- $_ := set . "InstallerPlan" (include "installer.makePlan" .) }}
{{- end }}
{{- get . "InstallerPlan" }}
{{- end }}

{{- define "installer.makePlan" -}}
{{- $namespace := include "installer.namespace" . }}
{{- $served := dict }}
{{- range (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "").items }}
{{- if and (eq .spec.group "composition.krateo.io") (include "installer.isEstablished" .) }}
{{- $versions := list }}
{{- range .spec.versions }}
{{- if .served }}
{{- $versions = append $versions .name }}
{{- end }}
{{- end }}
{{- $_ := set $served .spec.names.kind $versions }}
{{- end }}
{{- end }}

{{- /* Of each component: the version that is wanted, those that are served, the live object. */}}
{{- $facts := dict }}
{{- range .Values.components }}
{{- $wanted := include "installer.servedVersion" .version }}
{{- $versions := get $served .kind | default list }}
{{- $object := dict }}
{{- if has $wanted $versions }}
{{- $object = lookup (printf "composition.krateo.io/%s" $wanted) .kind $namespace .name }}
{{- else if $versions }}
{{- $object = lookup (printf "composition.krateo.io/%s" (last $versions)) .kind $namespace .name }}
{{- end }}
{{- $_ := set $facts .name (dict "wanted" $wanted "versions" $versions "object" $object) }}
{{- end }}

{{- $plan := dict }}
{{- range $c := .Values.components }}
{{- $fact := get $facts .name }}
{{- $isOn := include "installer.featureEnabled" (dict "root" $ "feature" .feature) }}
{{- $version := "" }}
{{- if $fact.object }}
{{- $isKept := $isOn }}
{{- range $.Values.components }}
{{- if and (has $c.name (.deps | default list)) (get $facts .name).object }}
{{- $isKept = "true" }}
{{- end }}
{{- end }}
{{- if $isKept }}
{{- $version = include "installer.currentVersion" $fact }}
{{- end }}
{{- else if and $isOn (has $fact.wanted $fact.versions) (include "installer.depsReady" (dict "component" $c "facts" $facts)) }}
{{- $version = $fact.wanted }}
{{- end }}
{{- $_ := set $plan .name (dict "definition" (or (not (empty $isOn)) (not (empty $fact.object))) "composition" $version) }}
{{- end }}
{{- toJson $plan }}
{{- end }}

{{- /* Not empty when a definition of a type serves it. One that tells no status is taken at its word. */}}
{{- define "installer.isEstablished" -}}
{{- if not .status }}true{{ end }}
{{- range (.status | default dict).conditions }}
{{- if and (eq .type "Established") (eq .status "True") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* The version through which a live object is written: the wanted one as soon as it is served, until then its own. Takes
       the facts of a component. */}}
{{- define "installer.currentVersion" -}}
{{- $own := index (.object.metadata.labels | default dict) "krateo.io/composition-version" | default "" }}
{{- if has .wanted .versions }}
{{- .wanted }}
{{- else if has $own .versions }}
{{- $own }}
{{- else }}
{{- last .versions }}
{{- end }}
{{- end }}

{{- /* Not empty when all that a component depends on is Ready. Takes component and facts. */}}
{{- define "installer.depsReady" -}}
{{- $ready := "true" }}
{{- range .component.deps }}
{{- if not (include "installer.isReady" (get $.facts .)) }}
{{- $ready = "" }}
{{- end }}
{{- end }}
{{- $ready }}
{{- end }}

{{- /* Not empty when the composition of a component is there in the wanted version, is Ready and does not go. Takes the facts
       of a component. */}}
{{- define "installer.isReady" -}}
{{- if and (has .wanted .versions) .object }}
{{- $metadata := .object.metadata }}
{{- $own := index ($metadata.labels | default dict) "krateo.io/composition-version" | default .wanted }}
{{- if and (eq $own .wanted) (not $metadata.deletionTimestamp) }}
{{- range (.object.status | default dict).conditions }}
{{- if and (eq .type "Ready") (eq .status "True") }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
