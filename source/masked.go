package source

import (
	"maps"

	"github.com/headgate-io/headgate/internal/redact"
)

// lastApplied is the annotation in which kubectl keeps the document as it was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Masked returns a copy of obj without a password in its spec.url, values of
// parameters in that and its spec.endpoint, and either in the document that kubectl
// keeps among the annotations: for what is printed or served. The saved
// status keeps the spec as it was written. What is below the spec and the
// status is shared with obj.
func Masked(obj Object) Object {
	copied := masked(obj)
	m := &copied.Head().Metadata
	if applied, ok := m.Annotations[lastApplied]; ok && copied != obj {
		m.Annotations = maps.Clone(m.Annotations)
		m.Annotations[lastApplied] = redact.String(applied)
	}
	return copied
}

// masked returns obj itself when it is of no kind of this package.
func masked(obj Object) Object {
	switch o := obj.(type) {
	case *GitRepository:
		copied := *o
		copied.Spec.URL = maskedURL(o.Spec.URL)
		return &copied
	case *OCIRepository:
		copied := *o
		copied.Spec.URL = maskedURL(o.Spec.URL)
		return &copied
	case *PkgRepository:
		copied := *o
		copied.Spec.URL = maskedURL(o.Spec.URL)
		return &copied
	case *Bucket:
		copied := *o
		copied.Spec.Endpoint = redact.Query(o.Spec.Endpoint)
		return &copied
	case *PkgChart:
		copied := *o
		return &copied
	case *ExternalArtifact:
		copied := *o
		return &copied
	}
	return obj
}

// maskedURL returns a URL without password and values of parameters, any of
// which may be a token; without either as it was written.
func maskedURL(url string) string { return redact.Query(redact.Password(url)) }

// OriginOf returns the URL or the endpoint that obj comes from, without
// credentials; of a chart its name and the source that has it; "" for an object
// that somebody else publishes.
func OriginOf(obj Object) string {
	switch o := obj.(type) {
	case *GitRepository:
		return redact.String(o.Spec.URL)
	case *OCIRepository:
		return redact.String(o.Spec.URL)
	case *PkgRepository:
		return redact.String(o.Spec.URL)
	case *Bucket:
		return redact.String(o.Spec.Endpoint + "/" + o.Spec.BucketName)
	case *PkgChart:
		return redact.String(o.Spec.Chart + " of " + o.kindOf(o.Spec.SourceRef.Kind) + "/" + o.Spec.SourceRef.Name)
	}
	return ""
}
