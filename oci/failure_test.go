package oci_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// failures are what conditions tell of steps that fail (reference A2), beyond
// what the conformance suite and hostile registries show.
var failures = []threat{
	{name: "URL without a path", spec: withURL("oci://h"), reason: "URLInvalid", says: []string{"spec.url"}},
	{name: "URL with a tag", spec: withURL("oci://h/x:v1"), reason: "URLInvalid", says: []string{"spec.ref"}},
	{name: "URL of another scheme", spec: withURL("https://h/x"), reason: "URLInvalid", says: []string{"oci://"}},
	{name: "unknown provider", spec: func(s *source.OCIRepositorySpec) { s.SecretRef, s.Provider = nil, "aws" }, reason: "InvalidProviderConfiguration", says: []string{"knows no provider aws"}},
	{name: "absent CA", spec: func(s *source.OCIRepositorySpec) { s.CertSecretRef = ref("absent") }, reason: authFailed, says: []string{"default/absent"}},
	{name: "absent digest", spec: pin(digest.FromString("absent")), reason: pullFailed, says: []string{"404", digest.FromString("absent").String()}},
	{name: "list refused", defect: answer(testenv.ListTags, 401), spec: ranged, reason: authFailed, says: []string{"list tags", "401"}},
	{name: "list that breaks", defect: answer(testenv.ListTags, 500), spec: ranged, reason: listFailed, says: []string{"500"}},
	{name: "manifest refused", defect: answer(testenv.GetManifest, 403), reason: authFailed, says: []string{"fetch manifest", "403"}},
	{name: "layer refused", defect: answer(testenv.GetBlob, 401), reason: authFailed, says: []string{"fetch blob", "401"}},
}

func TestFailures(t *testing.T) {
	for _, h := range failures {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.try(t, testenv.RegistryConfig{})
		})
	}
}

// TestLoginStalls waits for a provider that does not answer.
func TestLoginStalls(t *testing.T) {
	obj := &source.OCIRepository{Spec: source.OCIRepositorySpec{URL: "oci://registry.example.org/app", Provider: "aws"}}
	hasty(&obj.Spec)
	wait := func(ctx context.Context, _ source.LoginRequest) (source.Credential, error) {
		<-ctx.Done()
		return source.Credential{}, ctx.Err()
	}
	_, _, err := oci.New(obj, source.Env{Login: wait}, nil).Resolve(t.Context(), nil)
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || step.Reason != authFailed || !strings.Contains(err.Error(), "log in: not done within") {
		t.Errorf("%v", err)
	}
}

// TestForeignCertificate meets a registry whose certificate nobody vouches for.
func TestForeignCertificate(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{CA: testenv.NewCA(t)})
	obj := r.object("app", func(s *source.OCIRepositorySpec) { s.CertSecretRef = nil })
	r.refused(obj, nil, authFailed, "certificate")
}

func withURL(u string) func(*source.OCIRepositorySpec) {
	return func(s *source.OCIRepositorySpec) { s.URL = u }
}

func pin(d digest.Digest) func(*source.OCIRepositorySpec) {
	return func(s *source.OCIRepositorySpec) { s.Ref = &source.OCIRepositoryRef{Digest: d.String()} }
}

func answer(phase testenv.Phase, status int) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Status: status}
}
