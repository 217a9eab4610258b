{{- define "virtlens.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "virtlens.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "virtlens.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "virtlens.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "virtlens.selectorLabels" -}}
app.kubernetes.io/name: {{ include "virtlens.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "virtlens.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "virtlens.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "virtlens.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "virtlens.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- if and (not .Values.serviceAccount.name) (or .Values.openshift.scc.create (and .Values.rbac.create (include "virtlens.needsToken" .))) }}
{{- fail "serviceAccount.create is false: name an account in serviceAccount.name; bound to the namespace's default account, its rights would be every pod's there" }}
{{- end }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "virtlens.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Metadata of the PodMonitor or ServiceMonitor. */}}
{{- define "virtlens.monitorMetadata" -}}
name: {{ include "virtlens.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "virtlens.labels" . | nindent 2 }}
  {{- with .Values.podMonitor.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The endpoint that a PodMonitor or ServiceMonitor scrapes. */}}
{{- define "virtlens.endpoint" -}}
- port: metrics
  path: /metrics
  scheme: {{ ternary "https" "http" .Values.web.tls }}
  interval: {{ .Values.podMonitor.interval }}
  scrapeTimeout: {{ .Values.podMonitor.scrapeTimeout }}
  honorLabels: {{ .Values.podMonitor.honorLabels }}
  {{- range $key := list "tlsConfig" "basicAuth" "authorization" "relabelings" "metricRelabelings" }}
  {{- with index $.Values.podMonitor $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* The folder of the rules and dashboards for the names of labels in Prometheus. */}}
{{- define "virtlens.files" -}}
{{- if or .Values.exportedLabels (and (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) (not .Values.podMonitor.honorLabels)) -}}
files/exported
{{- else -}}
files
{{- end }}
{{- end }}

{{- define "virtlens.configMapName" -}}
{{- default (include "virtlens.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{/* The agent's configuration file. */}}
{{- define "virtlens.config" -}}
{{- if and .Values.web.tls (not .Values.web.existingSecret) (not (hasKey .Values.config "web_config")) }}
{{- fail "web.tls is true, and nothing gives the agent a certificate: name a Secret in web.existingSecret" }}
{{- end }}
{{- $own := dict
    "listen" (printf "%s:%d" .Values.web.address (int .Values.web.port))
    "metadata" (ternary (printf "file:%s" .Values.metadata.file) .Values.metadata.source (eq .Values.metadata.source "file")) }}
{{- with .Values.metadata.kubeletCA }}
{{- $_ := set $own "kubelet_ca" . }}
{{- end }}
{{- if .Values.web.existingSecret }}
{{- $_ := set $own "web_config" "/etc/virtlens/web/web-config.yaml" }}
{{- end }}
{{- $metrics := list .Values.metrics.profile }}
{{- range .Values.metrics.include }}{{ $metrics = append $metrics (printf "+%s" .) }}{{ end }}
{{- range .Values.metrics.exclude }}{{ $metrics = append $metrics (printf "-%s" .) }}{{ end }}
{{- $_ := set $own "metrics" (join "," $metrics) }}
{{- if not .Values.pin }}
{{- $_ := set $own "no_pin" true }}
{{- end }}
{{- with .Values.record }}
{{- if .enabled }}
{{- $_ := set $own "record" "/var/lib/virtlens/record" }}
{{- $_ := set $own "record_interval" .interval }}
{{- $_ := set $own "record_max_mib" (int .maxMiB) }}
{{- $_ := set $own "incidents_max_mib" (int .incidentsMaxMiB) }}
{{- $_ := set $own "record_max_age" .maxAge }}
{{- end }}
{{- end }}
{{- if ne .Values.web.auth "none" }}
{{- $_ := set $own "web_auth" .Values.web.auth }}
{{- end }}
{{- with .Values.web.traceUsers }}
{{- $_ := set $own "web_trace_users" (join "," .) }}
{{- end }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}

{{/* Whether the agent queries the API server or a kubelet. */}}
{{- define "virtlens.needsToken" -}}
{{- if or (has .Values.metadata.source (list "apiserver" "kubelet")) (eq .Values.web.auth "kubernetes") }}true{{ end }}
{{- end }}

{{/* securityContext; Kubernetes before 1.30 has no appArmorProfile. */}}
{{- define "virtlens.securityContext" -}}
{{- $context := deepCopy .Values.securityContext }}
{{- if semverCompare "<1.30-0" .Capabilities.KubeVersion.Version }}
{{- $context = omit $context "appArmorProfile" }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The AppArmor profile as an annotation, for Kubernetes before 1.30. */}}
{{- define "virtlens.appArmor" -}}
{{- if and (semverCompare "<1.30-0" .root.Capabilities.KubeVersion.Version) (eq (dig "appArmorProfile" "type" "" .root.Values.securityContext) "Unconfined") -}}
container.apparmor.security.beta.kubernetes.io/{{ .container }}: unconfined
{{- end }}
{{- end }}

{{/* Volume mounts of every container that reads the host. */}}
{{- define "virtlens.volumeMounts" -}}
- name: config
  mountPath: /etc/virtlens/config
  readOnly: true
- name: cgroup
  mountPath: /sys/fs/cgroup
  readOnly: true
  {{- if semverCompare ">=1.31-0" .Capabilities.KubeVersion.Version }}
  # cgroup v1 has several mounts; nested ones are read-only too if the runtime supports it.
  recursiveReadOnly: IfPossible
  {{- end }}
{{- if .Values.pin }}
- name: bpffs
  mountPath: /sys/fs/bpf
{{- end }}
{{- if .Values.web.existingSecret }}
- name: web
  mountPath: /etc/virtlens/web
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "virtlens.volumes" -}}
- name: config
  configMap:
    name: {{ include "virtlens.configMapName" . }}
# A container's own mount shows only its part of the hierarchy; this is the host's.
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
{{- if .Values.pin }}
# Pinned BPF programs and maps, which count while the pod is replaced.
- name: bpffs
  hostPath:
    path: /sys/fs/bpf
    type: Directory
{{- end }}
{{- with .Values.web.existingSecret }}
- name: web
  secret:
    secretName: {{ . }}
    defaultMode: 0400
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Volume of the recording. The agent makes a directory in it that only root can read. */}}
{{- define "virtlens.recordMount" -}}
- name: record
  mountPath: /var/lib/virtlens
{{- end }}

{{- define "virtlens.recordVolume" -}}
- name: record
  {{- if .Values.record.hostPath }}
  hostPath:
    path: {{ .Values.record.hostPath }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir:
    sizeLimit: {{ add .Values.record.maxMiB (div .Values.record.maxMiB 4) .Values.record.incidentsMaxMiB 16 }}Mi
  {{- end }}
{{- end }}

{{/* Without a recording: the volume of traces that clients request. A trace has at most 64 MiB. */}}
{{- define "virtlens.traceMount" -}}
- name: traces
  mountPath: /var/tmp/virtlens
{{- end }}

{{- define "virtlens.traceVolume" -}}
- name: traces
  emptyDir:
    sizeLimit: 80Mi
{{- end }}

{{/* The agent makes this directory, which only root can read. */}}
{{- define "virtlens.traceEnv" -}}
- name: TMPDIR
  value: /var/tmp/virtlens/traces
{{- end }}

{{- define "virtlens.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- if eq .Values.metadata.source "kubelet" }}
- name: HOST_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
- name: VIRTLENS_KUBELET_URL
  value: https://$(HOST_IP):{{ .Values.metadata.kubeletPort }}
{{- end }}
- name: VIRTLENS_CONFIG
  value: /etc/virtlens/config/virtlens.yaml
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Scheduling and identity of pods, shared by the DaemonSet and the test. */}}
{{- define "virtlens.placement" -}}
serviceAccountName: {{ include "virtlens.serviceAccountName" . }}
automountServiceAccountToken: {{ eq (include "virtlens.needsToken" .) "true" }}
hostPID: {{ .Values.hostPID }}
hostNetwork: {{ .Values.hostNetwork }}
dnsPolicy: {{ default (ternary "ClusterFirstWithHostNet" "ClusterFirst" .Values.hostNetwork) .Values.dnsPolicy }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
