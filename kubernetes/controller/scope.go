package controller

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/source"
)

// A Scope says which objects a controller keeps up to date. The zero value is all of them.
type Scope struct {
	Selector labels.Selector // of their labels; nil for all
	Shards   int             // how many controllers share them; 0 is 1
	Shard    int             // which of these it is, from 0
}

// Has reports whether an object of that name is in the shard, whatever its labels: the SHA-256 of KIND/NAMESPACE/NAME
// modulo the number of shards is the shard. KIND is as the specification spells it.
func (s Scope) Has(ref source.Reference) bool {
	owner, shards := 0, max(s.Shards, 1)
	for _, digit := range sha256.Sum256([]byte(ref.String())) {
		owner = (owner<<8 + int(digit)) % shards
	}
	return owner == s.Shard
}

// selects reports whether an object is in the scope.
func (s Scope) selects(o client.Object) bool {
	if s.Selector != nil && !s.Selector.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return s.Has(referenceTo(o))
}

// strip removes what nothing reads: of a source outside of the scope all but what others are made of.
func (s Scope) strip(in any) (any, error) {
	o, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	o.SetManagedFields(nil)
	u, ok := in.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind().Group != source.ReferenceGroup && u.GroupVersionKind().Group != source.Group || s.selects(u) {
		return in, nil
	}
	u.SetAnnotations(nil)
	u.SetOwnerReferences(nil)
	artifact, found, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "artifact")
	if delete(u.Object, "status"); found {
		u.Object["status"] = map[string]any{"artifact": artifact}
	}
	return u, nil
}
