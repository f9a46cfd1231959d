package source

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Bucket is an object-storage bucket (specification, "Bucket").
type Bucket struct {
	Header
	Spec   BucketSpec   `json:"spec"`
	Status BucketStatus `json:"status,omitzero"`
}

// BucketSpec is the spec of a Bucket. Reference A10 lists which fields may be combined with which
// provider.
type BucketSpec struct {
	Provider           string          `json:"provider,omitempty"` // generic (default), aws, gcp or azure
	BucketName         string          `json:"bucketName"`
	Endpoint           string          `json:"endpoint"` // see EndpointURL
	STS                *BucketSTSSpec  `json:"sts,omitempty"`
	Insecure           bool            `json:"insecure,omitempty"` // allow an endpoint without TLS
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
	STSAWS         = "aws"         // uses the identity of the program; requires provider aws
	STSLDAP        = "ldap"        // exchanges username and password of secretRef; requires provider generic
	STSWebIdentity = "webidentity" // exchanges token of secretRef, with roleArn if present; for both providers
)

// BucketSTSSpec asks for temporary credentials of a security token service.
type BucketSTSSpec struct {
	Provider      string          `json:"provider"` // aws, ldap or webidentity
	Endpoint      string          `json:"endpoint"` // an http or https URL
	SecretRef     *LocalReference `json:"secretRef,omitempty"`
	CertSecretRef *LocalReference `json:"certSecretRef,omitempty"`
}

// BucketStatus is the observed state of a Bucket.
type BucketStatus struct {
	Status
	ObservedIgnore *string `json:"observedIgnore,omitempty"`
}

// Common implements [Object].
func (b *Bucket) Common() *Status { return &b.Status.Status }

// Artifact implements [Source].
func (b *Bucket) Artifact() *artifact.Artifact { return b.Status.Artifact }

// Interval implements [Source].
func (b *Bucket) Interval() time.Duration { return time.Duration(b.Spec.Interval) }

// Plan implements [Object]. It has no timeout, because the origin applies one to each step itself.
func (b *Bucket) Plan() Plan {
	return Plan{Suspend: b.Spec.Suspend, Words: kindBySpelling("Bucket").words}
}

// Drift implements [Object].
func (b *Bucket) Drift(Revision) string {
	return drift(difference{"spec.ignore", !same(b.Spec.Ignore, b.Status.ObservedIgnore)})
}

// Observe implements [Object].
func (b *Bucket) Observe(Revision) { b.Status.ObservedIgnore = clone(b.Spec.Ignore) }

// An endpointForm describes the allowed forms of an endpoint. Errors never include the endpoint,
// because it may contain credentials.
type endpointForm struct {
	bare  bool // HOST or HOST:PORT
	url   bool // http://... or https://..., with a path: emulators and Azure accounts in path style
	query bool // with a query: a shared access signature
	want  string
}

var (
	s3Endpoint  = endpointForm{bare: true, want: "write HOST[:PORT]"}
	stsEndpoint = endpointForm{url: true, want: "write https://HOST[:PORT]"}

	// endpointForms is the table of forms by spec.provider (reference A10); others have s3Endpoint.
	endpointForms = map[string]endpointForm{
		"gcp":   {bare: true, url: true, want: "write https://HOST[:PORT][/PATH], for example https://storage.googleapis.com"},
		"azure": {bare: true, url: true, query: true, want: "write https://HOST[:PORT][/PATH], for example https://ACCOUNT.blob.core.windows.net"},
	}
)

const maxEndpoint = 8 << 10 // bytes; a signature may be long

// hostForm matches a DNS name, and names that are almost valid.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// EndpointURL returns the URL of the server in spec.endpoint. The field is HOST or HOST:PORT, which
// is contacted by https, or by http with spec.insecure. With the providers gcp and azure it may
// also be a URL, which may have a path. With azure it may have a query, the shared access
// signature, which is a secret. The returned path has no slash at its end.
//
// The error wraps [ErrInvalid] if the endpoint has another form, or is a URL with http without
// spec.insecure. It does not include the endpoint.
func (s *BucketSpec) EndpointURL() (*url.URL, error) {
	u, err := s.endpoint()
	return u, invalid("spec.endpoint", err)
}

func (s *BucketSpec) endpoint() (*url.URL, error) {
	return cmp.Or(endpointForms[s.Provider], s3Endpoint).parse(s.Endpoint, s.Insecure)
}

// EndpointURL returns the URL of the token service, which may be http or https. Errors are those of
// [BucketSpec.EndpointURL].
func (s *BucketSTSSpec) EndpointURL() (*url.URL, error) {
	u, err := stsEndpoint.parse(s.Endpoint, true)
	return u, invalid("spec.sts.endpoint", err)
}

// invalid adds the field of a spec to an error, and makes it wrap ErrInvalid.
func invalid(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, field, err)
}

// parse parses an endpoint; if text has no scheme, insecure selects http.
func (f endpointForm) parse(text string, insecure bool) (*url.URL, error) {
	if err := checkPresent(text); err != nil {
		return nil, err
	}
	_, _, hasScheme := strings.Cut(text, "://")
	switch {
	case len(text) > maxEndpoint:
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxEndpoint)
	case strings.Contains(text, "#"):
		return nil, errors.New("has a fragment: remove what begins with #")
	case hasScheme && !f.url:
		return nil, errors.New("has a scheme: write HOST[:PORT] alone, spec.insecure says whether it is http or https")
	case !hasScheme && !f.bare:
		return nil, errors.New("has no scheme: " + f.want)
	case !hasScheme && insecure:
		text = "http://" + text
	case !hasScheme:
		text = "https://" + text
	}
	u, err := url.Parse(text) // err would include credentials
	if err != nil {
		return nil, errors.New("cannot be parsed: " + f.want)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	switch {
	case u.User != nil:
		return nil, errors.New("has user information: credentials belong into secretRef")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("has another scheme than http or https: " + f.want)
	case u.Scheme == "http" && !insecure:
		return nil, errors.New("is http: use https, or set spec.insecure if nothing is to be encrypted")
	case (u.RawQuery != "" || u.ForceQuery) && !f.query:
		return nil, errors.New("has a query: remove what begins with ?")
	case u.Path != "" && !f.url:
		return nil, errors.New("has a path: " + f.want)
	case !hasHost(u):
		return nil, errors.New("names no host: " + f.want)
	}
	return u, nil
}

// hasHost reports whether u has a host and, if any, a port.
func hasHost(u *url.URL) bool {
	if n, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16); err != nil || n == 0 || strings.HasSuffix(u.Host, ":") {
		return false
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return addr.Zone() == ""
	}
	return len(u.Hostname()) <= 253 && hostForm.MatchString(u.Hostname())
}
