package source

import "github.com/headgate-io/headgate/internal/redact"

// Masked returns a copy of obj without a password in its spec.url, or a
// signature in its spec.endpoint: for what is printed or served. The saved
// status keeps the spec as it was written. What is below the spec and the
// status is shared with obj.
func Masked(obj Object) Object {
	switch o := obj.(type) {
	case *GitRepository:
		masked := *o
		masked.Spec.URL = redact.Password(o.Spec.URL)
		return &masked
	case *OCIRepository:
		masked := *o
		masked.Spec.URL = redact.Password(o.Spec.URL)
		return &masked
	case *PkgRepository:
		masked := *o
		masked.Spec.URL = redact.Password(o.Spec.URL)
		return &masked
	case *Bucket:
		masked := *o
		masked.Spec.Endpoint = redact.Query(o.Spec.Endpoint)
		return &masked
	case *PkgChart:
		masked := *o
		return &masked
	case *ExternalArtifact:
		masked := *o
		return &masked
	}
	return obj
}
