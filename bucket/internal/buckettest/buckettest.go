// Package buckettest is what buckets keep to whichever store holds them, for
// the conformance tests of each.
package buckettest

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// The defects of every store, beyond those of the suite.
const (
	NoBucket    sourcetest.Defect = "no such bucket"
	Refused     sourcetest.Defect = "refused object"
	Cut         sourcetest.Defect = "cut"
	Vanishes    sourcetest.Defect = "objects that vanish"
	Changes     sourcetest.Defect = "objects that change"
	StallObject sourcetest.Defect = "stall before the object"
)

// Objects returns the objects of a tree at a prefix. The ignore file is at the
// root of the bucket, wherever the tree is, and so is something that is not of it.
func Objects(tree fstest.MapFS, prefix string) map[string]string {
	objects := map[string]string{}
	if prefix != "" {
		objects["another"], objects[prefix+"-other/file"] = "another", "another"
	}
	for name, file := range tree {
		if prefix != "" && name != ".sourceignore" {
			name = prefix + "/" + name
		}
		objects[name] = string(file.Data)
	}
	return objects
}

// Run runs the suite for each variant, by its name. kind makes of what every
// Bucket is what a variant is.
func Run[V any](t *testing.T, variants map[string]V, open func(*testing.T, V) sourcetest.Upstream, kind func(*sourcetest.Kind, V)) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := bucket()
			k.Open = func(sourcetest.TB) sourcetest.Upstream { return open(t, v) }
			kind(&k, v)
			sourcetest.Run(t, k)
		})
	}
}

// bucket is what every Bucket is.
func bucket() sourcetest.Kind {
	return sourcetest.Kind{
		Name: "Bucket",
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.Bucket).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			sourcetest.Fails(sourcetest.Denied, "AuthenticationFailed", "403"),
			sourcetest.Fails(Refused, "AuthenticationFailed", "403"),
			sourcetest.Fails(sourcetest.Leaking, "BucketOperationFailed", "400"),
			sourcetest.Fails(sourcetest.Truncated, "BucketOperationFailed", ""),
			sourcetest.Fails(Cut, "BucketOperationFailed", ""),
			sourcetest.Fails(Vanishes, "BucketOperationFailed", ""),
			sourcetest.Fails(Changes, "BucketOperationFailed", ""),
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: "spec.endpoint"},
		},
		Stalls:     []sourcetest.Defect{sourcetest.StallResolve, StallObject, sourcetest.StallFetch},
		Hostile:    []string{"../up", "a/../../up", "/absolute", `a\b`, "..", "a/..", "./a", "a//b", "a\nb", "good/a", strings.Repeat("a", 256)},
		IgnoreFile: ".sourceignore",
		LosesModes: true,
	}
}
