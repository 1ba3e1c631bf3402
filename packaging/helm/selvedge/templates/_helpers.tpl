{{- define "selvedge.name" -}}
{{- if contains "selvedge" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-selvedge" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "selvedge.selector" -}}
app.kubernetes.io/name: selvedge
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "selvedge.labels" -}}
{{ include "selvedge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "selvedge.configuration" -}}
{{- $header := .Values.proxyProtocol.enabled | ternary " proxy-protocol=#true" "" -}}
{{- $proxies := .Values.proxyProtocol.enabled | ternary .Values.proxyProtocol.trustedProxies .Values.trustedProxies -}}
{{- if and .Values.proxyProtocol.enabled (empty $proxies) }}
{{- fail "proxyProtocol.enabled needs networks in proxyProtocol.trustedProxies" }}
{{- end -}}
control "/run/selvedge/control"
certificate-folder "/var/lib/selvedge/certificates"

log {
    access "stdout" format="json"
    error "stderr" format="json"
}

limits {
    shutdown-timeout "{{ .Values.shutdown.timeoutSeconds }}s"
}

listen "[::]:80"{{ $header }}
{{- if .Values.certificates }}
listen "[::]:443"{{ $header }}
{{- end }}
{{- range $proxies }}
trusted-proxies {{ . | quote }}
{{- end }}
{{- with .Values.ticketKeys.secretName }}
ticket-keys "/secrets/ticket-keys"
{{- end }}

// The readiness probe. It has a listener of its own, because the kubelet sends no header of the PROXY protocol.
listen "[::]:8081"

site "readiness.internal" {
    automatic-certificate #false
    route "/ready" {
        log #false
        respond 200 "ready"
    }
}

{{ .Values.sites | trim }}
{{- end }}
