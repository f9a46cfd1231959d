package source

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Bucket is an object-storage bucket (specification, "Bucket").
type Bucket struct {
	Header
	Spec   BucketSpec   `json:"spec"`
	Status BucketStatus `json:"status,omitzero"`
}

// BucketSpec is what a Bucket asks for. Which fields go with which provider is
// in reference A10.
type BucketSpec struct {
	Provider           string          `json:"provider,omitempty"` // generic (default), aws, gcp or azure
	BucketName         string          `json:"bucketName"`
	Endpoint           string          `json:"endpoint"` // see EndpointURL
	STS                *BucketSTSSpec  `json:"sts,omitempty"`
	Insecure           bool            `json:"insecure,omitempty"` // the endpoint may be without TLS
	Region             string          `json:"region,omitempty"`
	Prefix             string          `json:"prefix,omitempty"`
	SecretRef          *LocalReference `json:"secretRef,omitempty"`
	ServiceAccountName string          `json:"serviceAccountName,omitempty"` // not with provider generic or secretRef
	CertSecretRef      *LocalReference `json:"certSecretRef,omitempty"`
	ProxySecretRef     *LocalReference `json:"proxySecretRef,omitempty"`
	Interval           Duration        `json:"interval"`
	Timeout            Duration        `json:"timeout,omitempty"` // default 60s
	Ignore             *string         `json:"ignore,omitempty"`
	Suspend            bool            `json:"suspend,omitempty"`
}

// The values of [BucketSTSSpec].Provider.
const (
	STSAWS         = "aws"         // with the identity of the program; goes with provider aws
	STSLDAP        = "ldap"        // for username and password of secretRef; goes with provider generic
	STSWebIdentity = "webidentity" // for token of secretRef, and roleArn if it is there; goes with both
)

// BucketSTSSpec asks for temporary credentials of a security token service.
type BucketSTSSpec struct {
	Provider      string          `json:"provider"` // aws, ldap or webidentity
	Endpoint      string          `json:"endpoint"` // an http or https URL
	SecretRef     *LocalReference `json:"secretRef,omitempty"`
	CertSecretRef *LocalReference `json:"certSecretRef,omitempty"`
}

// BucketStatus is what was observed.
type BucketStatus struct {
	Status
	ObservedIgnore *string `json:"observedIgnore,omitempty"`
}

// Head implements [Object].
func (b *Bucket) Head() *Header { return &b.Header }

// Common implements [Object].
func (b *Bucket) Common() *Status { return &b.Status.Status }

// Artifact implements [Source].
func (b *Bucket) Artifact() *artifact.Artifact { return b.Status.Artifact }

// Interval implements [Source].
func (b *Bucket) Interval() time.Duration { return time.Duration(b.Spec.Interval) }

// Plan implements [Object]. The origin bounds its steps itself.
func (b *Bucket) Plan() Plan {
	return Plan{Suspend: b.Spec.Suspend, Words: wordsOf(b.kind())}
}

// Drift implements [Object].
func (b *Bucket) Drift(Revision) string {
	return drift(difference{"spec.ignore", !sameText(b.Spec.Ignore, b.Status.ObservedIgnore)})
}

// Observe implements [Object].
func (b *Bucket) Observe(Revision) { b.Status.ObservedIgnore = cloneText(b.Spec.Ignore) }
