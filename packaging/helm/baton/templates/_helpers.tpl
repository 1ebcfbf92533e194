{{- define "baton.selector" -}}
app.kubernetes.io/name: baton
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "baton.labels" -}}
{{ include "baton.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "baton.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* The name of server N, which stays when its pod gets another address. */}}
{{- define "baton.host" -}}
{{ .root.Release.Name }}-{{ .id }}.{{ .root.Release.Name }}-peers.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{- define "baton.clientPort" -}}
{{ ternary "2281" "2181" (ne .Values.tls.secretName "") }}
{{- end }}

{{/* The list for --servers. */}}
{{- define "baton.servers" -}}
{{- $root := . -}}
{{- $port := include "baton.clientPort" . -}}
{{- $list := list -}}
{{- range $id := untilStep 1 (add1 .Values.replicas | int) 1 -}}
{{- $list = append $list (printf "%s:%s" (include "baton.host" (dict "root" $root "id" $id)) $port) -}}
{{- end -}}
{{ ternary "tls://" "" (ne .Values.tls.secretName "") }}{{ join "," $list }}
{{- end }}

{{- define "baton.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "baton.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Secrets that the user's group may read and nobody else: a server refuses others. */}}
{{- define "baton.volumes" -}}
- name: settings
  configMap: {name: {{ .Release.Name }}-settings}
- name: admin
  secret: {secretName: {{ .Values.admin.secretName }}, defaultMode: 0400}
{{- if .Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ .Values.tls.secretName }}, defaultMode: 0400}
{{- end }}
{{- end }}
