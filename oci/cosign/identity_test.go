package cosign_test

import (
	"errors"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestIdentitiesAreRead is about what a spec can say of identities.
func TestIdentitiesAreRead(t *testing.T) {
	s := newSigstore(t)
	r := connect(t, testenv.StartRegistry(t, testenv.RegistryConfig{}), "app")
	any := []source.OIDCIdentityMatch{{Issuer: ".*", Subject: ".*"}}
	for name, test := range map[string]struct {
		trust   oci.Trust
		invalid bool
		want    string
	}{
		"none":             {oci.Trust{}, true, "spec.verify.matchOIDCIdentity: |the pattern .* for both"},
		"no issuer":        {oci.Trust{Identities: []source.OIDCIdentityMatch{any[0], {Subject: "x"}}}, true, "spec.verify.matchOIDCIdentity[1]: |issuer and subject are both required"},
		"no subject":       {oci.Trust{Identities: []source.OIDCIdentityMatch{{Issuer: "x"}}}, true, "spec.verify.matchOIDCIdentity[0]: "},
		"broken pattern":   {oci.Trust{Identities: []source.OIDCIdentityMatch{{Issuer: "(", Subject: "x"}}}, true, "spec.verify.matchOIDCIdentity[0]: |missing closing )"},
		"no trusted root":  {oci.Trust{Identities: any, Root: secret("root.json", s.trustedRoot(t))}, false, "spec.verify.trustedRootSecretRef: secret default/trust has no entry trusted_root.json"},
		"broken root":      {oci.Trust{Identities: any, Root: secret("trusted_root.json", "{")}, false, "secret default/trust: entry trusted_root.json: "},
		"root of no type":  {oci.Trust{Identities: any, Root: secret("trusted_root.json", "{}")}, false, "unsupported TrustedRoot media type"},
		"root of no certs": {oci.Trust{Identities: any, Root: secret("trusted_root.json", `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}]}`)}, false, "missing cert chain"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cosign.New(cosign.Config{})(r, test.trust)
			if missing := lacks(err, test.want); missing != nil || errors.Is(err, source.ErrInvalid) != test.invalid {
				t.Errorf("error %v lacks %q; that the spec is wrong: %t, want %t", err, missing, errors.Is(err, source.ErrInvalid), test.invalid)
			}
		})
	}
}

// TestAnyIdentityMayMatch has patterns that match anywhere, and several of them.
func TestAnyIdentityMayMatch(t *testing.T) {
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "app")
	attach(t, g, "app", subject, s.good(subject.Digest).bundle(t))
	root := secret("trusted_root.json", s.trustedRoot(t))
	for _, test := range []struct {
		ids  []source.OIDCIdentityMatch
		want string
	}{
		{[]source.OIDCIdentityMatch{{Issuer: "nobody", Subject: "nobody"}, {Issuer: "example", Subject: "lease@"}}, ""},
		{[]source.OIDCIdentityMatch{{Issuer: ".*", Subject: ".*"}}, ""},
		{[]source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "nobody"}, {Issuer: "nobody", Subject: ".*"}}, "it is by release@example.org"},
	} {
		got, err := verify(t, g, "app", oci.Trust{Root: root, Identities: test.ids}, subject)
		judge(t, got, err, test.want, identity+" ("+issuer+")")
	}
}
