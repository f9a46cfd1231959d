package metric

import (
	"io"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout"
)

// Decode reads the MetricTemplate documents of a stream of YAML documents or
// JSON values, of the groups [rollout.Group] and [rollout.ReferenceGroup], version v1beta1.
// Documents of other kinds are skipped. The error joins what is wrong, each
// with its place, templates with providers that are not supported and others of the
// same name among that; good templates are returned all the same.
func Decode(file string, r io.Reader) ([]*Template, error) {
	manifest := document.Manifest{Kind: kind, Groups: []string{rollout.Group, rollout.ReferenceGroup}, Version: version, Namespace: rollout.DefaultNamespace}
	return document.DecodeAll(file, r, manifest, (*Template).check)
}
