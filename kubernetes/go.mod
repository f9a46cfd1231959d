module github.com/headgate-io/headgate/kubernetes

go 1.26.0

replace github.com/headgate-io/headgate => ../

require (
	github.com/evanphx/json-patch/v5 v5.9.11
	github.com/go-logr/logr v1.4.3
	github.com/headgate-io/headgate v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.24.0
	github.com/spf13/pflag v1.0.10
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/klog/v2 v2.140.0
	sigs.k8s.io/controller-runtime v0.25.2
)
