{{- /* What is rendered of each component, given what the cluster has: name -> definition (a boolean) and composition (the
       version it is written through; empty: it is not rendered), as JSON.

       A composition is created once its type is served in the wanted version and everything that it depends on is Ready.
       Once it exists it is always rendered, even if its dependencies are not Ready any more, because leaving an object out
       of a manifest removes it. While its type gets another version, it is rendered in its present one. Components that are
       turned off are removed in reverse order of dependency: a composition stays as long as one that depends on it exists,
       a definition as long as its composition does.

       Types are listed once, and then only objects of served types are looked up: other lookups would fail. */}}
{{- define "installer.plan" -}}
{{- /* All templates of a chart share their root, so the plan is computed once for both passes. */}}
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

{{- /* For each component: the wanted version, the served versions, the live object. */}}
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

{{- /* Not empty when a CRD is established. One without a status counts as established. */}}
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

{{- /* Not empty when the composition of a component exists in the wanted version, is Ready and is not being deleted. Takes
       the facts of a component. */}}
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
