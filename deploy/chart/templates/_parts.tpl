{{- /* What the pods have in common. */ -}}

{{- define "holdfast.labels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .release }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "holdfast.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.serviceAccount.name }}
serviceAccountName: {{ . }}
{{- end }}
{{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
{{- with get $.Values $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "holdfast.container" -}}
image: {{ required "image: your image, e.g. registry.example/shop:1" .Values.image | quote }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "holdfast.env" -}}
{{- if .Values.databasesSecret -}}
- name: HOLDFAST_DATABASES_FILE
  value: /etc/holdfast-databases/databases.toml
{{- else -}}
- name: HOLDFAST_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.secret.name }}
      key: {{ .Values.secret.database }}
{{- end }}
- name: HOLDFAST_SHUTDOWN_TIMEOUT_MS
  value: {{ mul .Values.shutdownTimeout 1000 | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- /* The folder of the file of databases. Not a subPath, which would not follow changes of the secret. */ -}}

{{- define "holdfast.mounts" -}}
{{- if .Values.databasesSecret -}}
- {name: databases, mountPath: /etc/holdfast-databases, readOnly: true}
{{- end }}
{{- end }}

{{- define "holdfast.volumes" -}}
{{- if .Values.databasesSecret -}}
- name: databases
  secret:
    secretName: {{ .Values.databasesSecret }}
    items:
      - {key: databases.toml, path: databases.toml}
{{- end }}
{{- end }}
