package oci_test

import (
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// technologies are what signatures are verified with.
var technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}

// signer is whom objects trust in these tests.
func signer(t testing.TB) *testenv.Cosign { return testenv.NewCosign(t, 1) }

// trusted is the Secret with the key of the signer.
func trusted(t testing.TB) source.Secret {
	return source.Secret{Data: map[string][]byte{"cosign.pub": signer(t).Public()}}
}

// signed asks for verification with the key of the signer.
func signed(s *source.OCIRepositorySpec) {
	s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
}
