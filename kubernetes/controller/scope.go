package controller

import (
	"crypto/sha256"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/source"
)

// A Scope selects the objects that a controller keeps up to date. The zero value selects all.
type Scope struct {
	Selector labels.Selector // of their labels; nil for all
	Shards   int             // number of controllers that share them; 0 means 1
	Shard    int             // index of this controller, from 0
}

// Has reports whether an object with this reference is in the shard, regardless of labels. The
// shard of an object is the SHA-256 of KIND/NAMESPACE/NAME modulo the number of shards. KIND is
// spelled as in the specification.
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

// A cachedSource is an object in the cache of the manager. It keeps only identifying and deletion
// metadata. The decoded object is attached until the controller takes it.
type cachedSource struct {
	metav1.PartialObjectMetadata
	foreign bool    // outside of the scope
	object  *object // nil after the controller took it
	problem error   // why it could not be decoded
}

// transform is the transform of the cache. It replaces sources with cachedSources.
func (s Scope) transform(in any) (any, error) {
	if o, ok := in.(client.Object); ok {
		o.SetManagedFields(nil)
	}
	if u, ok := in.(*unstructured.Unstructured); ok && slices.Contains([]string{source.Group, source.ReferenceGroup}, u.GroupVersionKind().Group) {
		return s.newCachedSource(u), nil
	}
	return in, nil
}

// newCachedSource decodes an object. Of an object outside the scope it keeps only the fields that dependents
// need.
func (s Scope) newCachedSource(u *unstructured.Unstructured) *cachedSource {
	seen := &cachedSource{foreign: !s.selects(u)}
	seen.SetGroupVersionKind(u.GroupVersionKind())
	seen.Namespace, seen.Name, seen.UID, seen.ResourceVersion = u.GetNamespace(), u.GetName(), u.GetUID(), u.GetResourceVersion()
	seen.DeletionTimestamp, seen.Finalizers = u.GetDeletionTimestamp(), u.GetFinalizers()
	if seen.foreign {
		artifact, found, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "artifact")
		bare := maps.Clone(u.Object)
		delete(bare, "status")
		if found {
			bare["status"] = map[string]any{"artifact": artifact}
		}
		u = &unstructured.Unstructured{Object: bare}
	}
	if seen.object, seen.problem = decode(u); seen.object != nil {
		seen.object.foreign = seen.foreign
		m := &seen.object.doc.Head().Metadata
		m.ManagedFields = nil
		delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
		if seen.foreign {
			m.Annotations, m.OwnerReferences = nil, nil
		}
	}
	return seen
}
