{{- /* The spec of a component, as JSON: computed values, which take precedence, and componentValues. Takes root, component,
       and addresses: name of a component -> URL, for those whose URL is known. */}}
{{- define "installer.spec" -}}
{{- $c := .component }}
{{- $values := .root.Values }}
{{- $own := dict }}
{{- if and $c.expose (has $values.exposure.type (list "LoadBalancer" "NodePort")) }}
{{- $own = dict "type" $values.exposure.type }}
{{- range $c.serviceValuesPath | default "service" | splitList "." | reverse }}
{{- $own = dict . $own }}
{{- end }}
{{- end }}
{{- if $c.consumer }}
{{- $config := dict }}
{{- range $peer := $values.components }}
{{- with get $.addresses $peer.name }}
{{- $url := . }}
{{- range $peer.configKeys }}
{{- $_ := set $config . $url }}
{{- end }}
{{- end }}
{{- end }}
{{- if $config }}
{{- $_ := set $own "config" $config }}
{{- end }}
{{- end }}
{{- if $c.vertexAI }}
{{- $_ := set $own "hitlApproval" $values.hitlApproval }}
{{- if $values.vertexAI.enabled }}
{{- $_ := set $own "vertexAI" (pick $values.vertexAI "enabled" "projectID" "location") }}
{{- end }}
{{- end }}
{{- with ($values.global | default dict).imageRegistry }}
{{- $_ := set $own "global" (dict "imageRegistry" .) }}
{{- end }}
{{- $spec := deepCopy (get ($values.componentValues | default dict) $c.name | default dict) }}
{{- include "installer.overlay" (dict "into" $spec "from" $own) }}
{{- toJson $spec }}
{{- end }}

{{- /* Sets every leaf of `from` in `into`. sprig's mergeOverwrite would skip false and empty values. */}}
{{- define "installer.overlay" -}}
{{- range $key, $value := .from }}
{{- $known := get $.into $key }}
{{- if and (kindIs "map" $value) (kindIs "map" $known) }}
{{- include "installer.overlay" (dict "into" $known "from" $value) }}
{{- else }}
{{- $_ := set $.into $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The URLs of components that have configKeys, as JSON: name -> URL. Those that are not reachable yet are left out. */}}
{{- define "installer.addresses" -}}
{{- $addresses := dict }}
{{- $services := (lookup "v1" "Service" (include "installer.namespace" .) "").items | default list }}
{{- range $c := .Values.components }}
{{- if $c.configKeys }}
{{- $scope := dict "services" $services "match" $c.svcMatch "port" $c.exposePort }}
{{- with include "installer.lbip" $scope }}
{{- $_ := set $addresses $c.name (printf "http://%s:%v" . ($c.exposePort | int)) }}
{{- else }}
{{- $nodeIP := $.Values.exposure.nodeIP }}
{{- $nodePort := include "installer.nodePort" $scope }}
{{- if and (eq $.Values.exposure.type "NodePort") $nodeIP $nodePort }}
{{- $_ := set $addresses $c.name (printf "http://%s:%s" (include "installer.host" $nodeIP) $nodePort) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $addresses }}
{{- end }}

{{- /* The address of the LoadBalancer whose name contains `match`; of several the last one. Takes services and match. */}}
{{- define "installer.lbip" -}}
{{- $address := "" }}
{{- range .services }}
{{- if and (eq .spec.type "LoadBalancer") (contains $.match .metadata.name) }}
{{- range ((.status | default dict).loadBalancer | default dict).ingress }}
{{- $address = .ip | default .hostname | default $address }}
{{- end }}
{{- end }}
{{- end }}
{{- include "installer.host" $address }}
{{- end }}

{{- /* The node port of the Service whose name contains `match`. Takes services, match and port. */}}
{{- define "installer.nodePort" -}}
{{- $nodePort := "" }}
{{- range .services }}
{{- if and (eq .spec.type "NodePort") (contains $.match .metadata.name) }}
{{- range .spec.ports }}
{{- if and .nodePort (eq (int .port) (int $.port)) }}
{{- $nodePort = int .nodePort | toString }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $nodePort }}
{{- end }}

{{- /* An address as written in a URL: IPv6 in brackets. */}}
{{- define "installer.host" -}}
{{- if contains ":" . }}[{{ . }}]{{ else }}{{ . }}{{ end }}
{{- end }}
