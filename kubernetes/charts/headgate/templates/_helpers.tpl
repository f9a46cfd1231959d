{{- define "headgate.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: headgate-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "headgate.flux" -}}
{{- if eq .Values.group "source.toolkit.fluxcd.io" }}true{{ end -}}
{{- end -}}

{{- define "headgate.account" -}}
{{- .Values.serviceAccount.name | default (include "headgate.name" .) -}}
{{- end -}}

{{- /* The name of a role: those of the cluster must not meet those of a release in another namespace. */ -}}
{{- define "headgate.role" -}}
{{- if .Values.allNamespaces }}{{ .Release.Namespace }}-{{ end }}{{ include "headgate.name" . -}}
{{- end -}}

{{- define "headgate.service" -}}
{{- if gt (int .Values.shards) 1 -}}
{{ .Values.service.name | default (printf "%s-shards" (include "headgate.name" .)) }}
{{- else -}}
{{ .Values.service.name | default (ternary "source-controller" (include "headgate.name" .) (eq (include "headgate.flux" .) "true")) }}
{{- end -}}
{{- end -}}

{{- define "headgate.eventsAddr" -}}
{{- if .Values.eventsAddr -}}
{{ .Values.eventsAddr }}
{{- else if include "headgate.flux" . -}}
http://notification-controller.$(RUNTIME_NAMESPACE).svc.{{ .Values.clusterDomain }}./
{{- end -}}
{{- end -}}

{{- define "headgate.pod" -}}
metadata:
  labels:
    {{- include "headgate.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "headgate.account" . }}
  terminationGracePeriodSeconds: 60
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: manager
      image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - --storage-path=/data
        - --enable-leader-election
        - --group={{ .Values.group }}
        {{- if gt (int .Values.shards) 1 }}
        - --shards={{ .Values.shards }}
        {{- end }}
        {{- if not .Values.allNamespaces }}
        - --watch-all-namespaces=false
        {{- end }}
        {{- with .Values.labelSelector }}
        - {{ printf "--watch-label-selector=%s" . | quote }}
        {{- end }}
        {{- if not .Values.watchSecrets }}
        - --watch-secrets=false
        {{- end }}
        {{- if .Values.identities }}
        - --feature-gates=ObjectLevelWorkloadIdentity=true
        {{- end }}
        {{- if .Values.hooks.enabled }}
        - --hooks-addr=:9292
        {{- with .Values.hooks.secret }}
        - --hook-secret={{ . }}
        {{- end }}
        {{- end }}
        {{- if .Values.crds.apply }}
        - --crds
        {{- if .Values.crds.v1beta2 }}
        - --with-v1beta2
        {{- end }}
        {{- end }}
        {{- range .Values.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: RUNTIME_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        - name: STORAGE_ADV_ADDR
          {{- if gt (int .Values.shards) 1 }}
          value: $(POD_NAME).{{ include "headgate.service" . }}.$(RUNTIME_NAMESPACE).svc.{{ .Values.clusterDomain }}.:9090
          {{- else }}
          value: {{ include "headgate.service" . }}.$(RUNTIME_NAMESPACE).svc.{{ .Values.clusterDomain }}.
          {{- end }}
        {{- with include "headgate.eventsAddr" . }}
        - name: EVENTS_ADDR
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 9090
        - name: http-prom
          containerPort: 8080
        - name: healthz
          containerPort: 9440
        {{- if .Values.hooks.enabled }}
        - name: hooks
          containerPort: 9292
        {{- end }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: healthz
      readinessProbe:
        httpGet:
          path: /readyz
          port: healthz
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: data
          mountPath: /data
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if not .Values.persistence.size }}
    - name: data
      emptyDir: {}
    {{- else if eq (int .Values.shards) 1 }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ include "headgate.name" . }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "headgate.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .Values.persistence.storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.persistence.size }}
{{- end -}}
