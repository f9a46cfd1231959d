package source

import (
	"cmp"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// OCIRepository is a repository of OCI artifacts (specification, "OCIRepository").
type OCIRepository struct {
	Header
	Spec   OCIRepositorySpec   `json:"spec"`
	Status OCIRepositoryStatus `json:"status,omitzero"`
}

// OCIRepositorySpec is the spec of an OCIRepository.
type OCIRepositorySpec struct {
	URL                string                     `json:"url"` // oci://HOST[:PORT]/PATH
	Ref                *OCIRepositoryRef          `json:"ref,omitempty"`
	LayerSelector      *OCILayerSelector          `json:"layerSelector,omitempty"`
	Provider           string                     `json:"provider,omitempty"` // generic (default), aws, azure or gcp
	SecretRef          *LocalReference            `json:"secretRef,omitempty"`
	Verify             *OCIRepositoryVerification `json:"verify,omitempty"`
	ServiceAccountName string                     `json:"serviceAccountName,omitempty"`
	CertSecretRef      *LocalReference            `json:"certSecretRef,omitempty"`
	ProxySecretRef     *LocalReference            `json:"proxySecretRef,omitempty"`
	Interval           Duration                   `json:"interval"`
	Timeout            Duration                   `json:"timeout,omitempty"` // default 60s
	Ignore             *string                    `json:"ignore,omitempty"`
	Insecure           bool                       `json:"insecure,omitempty"`
	Suspend            bool                       `json:"suspend,omitempty"`
}

// OCIRepositoryRef selects an artifact. Precedence: digest, semver, tag.
type OCIRepositoryRef struct {
	Digest       string `json:"digest,omitempty"`
	SemVer       string `json:"semver,omitempty"`
	SemVerFilter string `json:"semverFilter,omitempty"` // regular expression on tags
	Tag          string `json:"tag,omitempty"`          // default latest
}

// The operations of [OCILayerSelector].
const (
	LayerExtract = "extract"
	LayerCopy    = "copy"
)

// OCILayerSelector selects a layer and its treatment.
type OCILayerSelector struct {
	MediaType string `json:"mediaType,omitempty"` // default: the first layer
	Operation string `json:"operation,omitempty"` // extract (default) or copy
}

// OCIRepositoryVerification asks for signature verification of an OCI artifact.
type OCIRepositoryVerification struct {
	Provider             string              `json:"provider,omitempty"` // cosign (default) or notation
	SecretRef            *LocalReference     `json:"secretRef,omitempty"`
	MatchOIDCIdentity    []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`
	TrustedRootSecretRef *LocalReference     `json:"trustedRootSecretRef,omitempty"` // OCIRepository only
}

// OIDCIdentityMatch matches the identity in a signing certificate. Both fields
// are regular expressions in Go syntax.
type OIDCIdentityMatch struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
}

// OCIRepositoryStatus is the observed state of an OCIRepository.
type OCIRepositoryStatus struct {
	Status
	ObservedIgnore        *string           `json:"observedIgnore,omitempty"`
	ObservedLayerSelector *OCILayerSelector `json:"observedLayerSelector,omitempty"`
}

// Common implements [Object].
func (o *OCIRepository) Common() *Status { return &o.Status.Status }

// Artifact implements [Source].
func (o *OCIRepository) Artifact() *artifact.Artifact { return o.Status.Artifact }

// Interval implements [Source].
func (o *OCIRepository) Interval() time.Duration { return time.Duration(o.Spec.Interval) }

// Plan implements [Object].
func (o *OCIRepository) Plan() Plan {
	return Plan{
		// No Timeout: the origin applies spec.timeout to login, listing, look-up and pull
		// separately.
		Suspend: o.Spec.Suspend,
		Verify:  o.Spec.Verify.provider(),
		Words:   kindBySpelling("OCIRepository").words,
	}
}

// provider returns the requested technology, "" if no verification is requested.
func (v *OCIRepositoryVerification) provider() string {
	if v == nil {
		return ""
	}
	return cmp.Or(v.Provider, "cosign")
}

// selection returns the selector with defaults; nil selects the same as an empty selector.
func (s *OCILayerSelector) selection() OCILayerSelector {
	out := *cmp.Or(s, new(OCILayerSelector))
	setDefault(&out.Operation, LayerExtract)
	return out
}

// Drift implements [Object].
func (o *OCIRepository) Drift(Revision) string {
	return drift(
		difference{"spec.ignore", !same(o.Spec.Ignore, o.Status.ObservedIgnore)},
		difference{"spec.layerSelector", o.Spec.LayerSelector.selection() != o.Status.ObservedLayerSelector.selection()},
	)
}

// Observe implements [Object].
func (o *OCIRepository) Observe(Revision) {
	o.Status.ObservedIgnore = clone(o.Spec.Ignore)
	o.Status.ObservedLayerSelector = clone(o.Spec.LayerSelector)
}
