package main

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/headgate-io/headgate/kubernetes/controller"
)

// define applies the definitions, if the flags say so.
func (f *flags) define(ctx context.Context, cluster *rest.Config) error {
	if !f.crds {
		return nil
	}
	if err := controller.Define(ctx, cluster, f.group, f.beta); err != nil {
		return fmt.Errorf("--crds: %w", err)
	}
	return nil
}

// artifacts serves artifacts, and answers the probe of source-controller's Deployment, which is for the root.
func artifacts(stored http.Handler, ready func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/":
			stored.ServeHTTP(w, r)
		case !ready():
			http.Error(w, "the sources are not restored, or another replica has the lease", http.StatusServiceUnavailable)
		}
	})
}
