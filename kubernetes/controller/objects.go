package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	informers "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// kinds are the watched kinds, as spelled in the specification.
var kinds = []string{"GitRepository", "OCIRepository", "Bucket", "PkgRepository", "PkgChart", "ExternalArtifact"}

// finalizer is the finalizer that source-controller puts on every object.
const finalizer = "finalizers.fluxcd.io"

// emptyObject returns an empty object of a kind, spelled as in documents of the group.
func emptyObject(group, kind string) *unstructured.Unstructured {
	spellings := source.Spellings(kind)
	if group == source.ReferenceGroup {
		kind = spellings[len(spellings)-1]
	}
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: source.V1, Kind: kind})
	return u
}

// An object is the controller's view of an object in the cluster.
type object struct {
	doc     source.Object // the document that the server has
	foreign bool          // another controller keeps it up to date
	defect  error         // why its spec is invalid
	uses    []string      // names of Secrets in its spec
	account *string       // service account for its cloud provider, "" for the default; nil without a provider
	uid     types.UID
	version string
	full    []byte // the status, encoded
	own     []byte // the status without conditions of other controllers
	sent    []byte // value of own that was last sent
	pruned  []byte // value of own that the API server returned for sent
	others  []source.Condition
}

// Follow implements [serve.Feed].
func (c *controller) Follow(ctx context.Context, set func(serve.Desired)) error {
	var synced []informers.InformerSynced
	for _, kind := range kinds {
		informer, err := c.mgr.GetCache().GetInformer(ctx, emptyObject(c.group, kind), cache.BlockUntilSynced(false))
		if meta.IsNoMatchError(err) {
			c.log.Warn("the cluster has no such kind, it is not watched", "kind", kind, "group", c.group)
			continue
		}
		if err != nil {
			return err
		}
		registration, err := informer.AddEventHandler(informers.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.observe(o, false) },
			UpdateFunc: func(_, o any) { c.observe(o, false) },
			DeleteFunc: c.forget,
		})
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if len(synced) == 0 {
		return fmt.Errorf("the cluster has no kind of the group %s: apply the definitions first", c.group)
	}
	if !c.unwatched {
		if err := c.watchSecrets(ctx); err != nil {
			return err
		}
	}
	if !informers.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	d := c.desired()
	if err := c.states.clean(c.knownToServer); err != nil {
		c.log.Warn("remembered states", "problem", err.Error())
	}
	for {
		set(d)
		c.follow(ctx)
		select {
		case <-c.dirty:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(gatherDelay):
		case <-ctx.Done():
			return nil
		}
		d = c.desired()
	}
}

// gatherDelay is the time for which changes are collected before the server gets them.
const gatherDelay = 50 * time.Millisecond

// desired returns the objects of this controller, and the objects that they depend on.
func (c *controller) desired() serve.Desired {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := serve.Desired{Secrets: c, Watched: true, Objects: make([]source.Object, 0, len(c.objects))}
	told, foreign, charts := make(map[source.Reference]types.UID, len(c.objects)), make(map[source.Reference]bool), make(map[string]bool)
	var add func(source.Reference)
	add = func(ref source.Reference) {
		k := c.objects[ref]
		if _, known := told[ref]; known || k == nil {
			return
		}
		if before, known := c.knownToServer[ref]; known && before != k.uid { // it was recreated and has no status
			c.changes[ref] = serve.Start
		}
		if told[ref] = k.uid; k.foreign {
			foreign[ref] = true
		}
		if k.defect != nil && !k.foreign {
			d.Invalid = append(d.Invalid, source.Invalid{Object: k.doc, Err: k.defect})
		} else {
			d.Objects = append(d.Objects, k.doc)
		}
		for _, need := range k.doc.Plan().Needs {
			add(need)
		}
	}
	for ref, k := range c.objects {
		if !k.foreign {
			add(ref)
			charts[ref.Namespace] = charts[ref.Namespace] || ref.Kind == "PkgChart"
		}
	}
	for ref := range c.objects {
		if ref.Kind == "PkgRepository" && charts[ref.Namespace] { // chart dependencies name repositories by URL
			add(ref)
		}
	}
	d.Foreign = func(ref source.Reference) bool { return foreign[ref] || !c.scope.Has(ref) }
	for ref := range c.knownToServer {
		if _, exists := told[ref]; !exists {
			durations.DeleteLabelValues(emptyObject(c.group, ref.Kind).GetKind(), ref.Name, ref.Namespace)
		}
	}
	c.knownToServer = told
	return d
}

// follow processes the collected changes after the server has received the objects.
func (c *controller) follow(ctx context.Context) {
	c.mu.Lock()
	changes, deleted, secrets := c.changes, c.deleted, c.secrets
	c.changes, c.deleted, c.secrets = make(map[source.Reference]serve.Trigger), make(map[source.Reference]deletion), make(map[types.NamespacedName]bool)
	for ref, k := range c.objects {
		if len(secrets) == 0 {
			break
		}
		changed := func(name string) bool { return secrets[types.NamespacedName{Namespace: ref.Namespace, Name: name}] }
		if c.identities && k.account != nil && changed(cmp.Or(*k.account, c.defaultAccount)) {
			changes[ref] = serve.Secret
		}
		if slices.ContainsFunc(k.uses, changed) {
			if v, err := c.server.View(ref); err == nil && v.Last.Number == 0 { // after its first run the server knows which Secrets it used
				changes[ref] = serve.Secret
			}
		}
	}
	c.mu.Unlock()
	for ref, trigger := range changes {
		_, _ = c.server.Request(ref, trigger) // fails if it is suspended or removed, which is fine
	}
	for name := range secrets {
		c.server.SecretChanged(name.Namespace, name.Name)
	}
	for ref, d := range deleted {
		if err := c.release(ctx, d.Object); err != nil && ctx.Err() == nil {
			c.log.Warn("remove finalizer", "object", ref.String(), "problem", withGrantAdvice(err).Error(), "again", d.wait.String())
			time.AfterFunc(d.wait, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if _, newer := c.deleted[ref]; !newer {
					c.deleted[ref] = deletion{d.Object, min(2*d.wait, maxReleaseWait)}
					c.wake()
				}
			})
		}
	}
}

// A deletion is a deleted object that still has the finalizer.
type deletion struct {
	client.Object
	wait time.Duration // delay after the next failure to remove it
}

// These are the minimum and maximum delay before the removal of a finalizer is retried.
const (
	releaseWait    = time.Second
	maxReleaseWait = time.Minute
)

// wake wakes Follow up.
func (c *controller) wake() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// release removes the finalizer of source-controller. A conflict is not an error, because the watch
// then reports the object again.
func (c *controller) release(ctx context.Context, o client.Object) error {
	if err := c.checkLease(); err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(name string) bool { return name == finalizer })
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion(), "finalizers": left}})
	if err != nil {
		return err
	}
	ctx, cancel := requestContext(ctx)
	defer cancel()
	err = c.mgr.GetClient().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, body))
	return ignoreReasons(err, metav1.StatusReasonNotFound, metav1.StatusReasonConflict)
}

// forget handles the deletion of an object.
func (c *controller) forget(o any) {
	if last, ok := o.(informers.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	gone, ok := o.(client.Object)
	if !ok {
		return
	}
	ref := referenceTo(gone)
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.objects[ref]; k != nil && k.uid == gone.GetUID() {
		c.drop(ref)
	}
}

// drop removes an object. If the server knows it, drop wakes Follow up. The caller holds c.mu.
func (c *controller) drop(ref source.Reference) {
	delete(c.objects, ref)
	if _, known := c.knownToServer[ref]; known {
		c.wake()
	}
}

func referenceTo(o client.Object) source.Reference {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	return source.Reference{Kind: append(source.Spellings(kind), kind)[0], Namespace: o.GetNamespace(), Name: o.GetName()}
}

// observe records the state of an object in the API server. If ours is set, it is the response to a
// request of this controller.
func (c *controller) observe(o any, ours bool) {
	seen, ok := o.(*cachedSource)
	if u, raw := o.(*unstructured.Unstructured); raw && !c.hasVersion(u) { // a response, or from a cache with other options
		seen, ok = c.scope.newCachedSource(u), true
	}
	if !ok {
		return
	}
	now := seen.object
	seen.object = nil
	if c.hasVersion(seen) {
		return
	}
	ref, foreign := referenceTo(seen), seen.foreign
	if gone := seen.DeletionTimestamp != nil; gone || foreign && ref.Kind == "PkgChart" { // nothing depends on a chart of another controller
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(ref)
		if gone && !foreign && slices.Contains(seen.Finalizers, finalizer) {
			c.deleted[ref] = deletion{&seen.PartialObjectMetadata, releaseWait}
			c.wake()
		}
		return
	}
	if now == nil {
		if seen.problem != nil {
			c.log.Warn("object", "object", ref.String(), "problem", seen.problem.Error())
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects[ref]
	_, external := now.doc.(*source.ExternalArtifact)
	external = external || foreign
	switch {
	case k == nil && ours: // deleted since the request
		return
	case k == nil:
		c.objects[ref] = now
		c.wake()
		return
	case !newer(now.version, k.version):
		return
	case k.uid == now.uid && k.foreign == foreign && !ours && !external && !bytes.Equal(now.own, k.own) && !bytes.Equal(now.own, k.sent):
		c.changes[ref] = serve.Repair
		c.wake()
	}
	if now.sent, now.pruned = k.sent, k.pruned; bytes.Equal(now.sent, now.own) {
		now.sent = now.own // share the memory
	}
	same := k.uid == now.uid && k.foreign == foreign && sameDocument(now.doc.Head().Metadata, k.doc.Head().Metadata)
	if same && (!external || bytes.Equal(now.full, k.full)) {
		now.doc, now.defect = k.doc, k.defect // keeping the document tells the server that it is unchanged
	} else if _, known := c.knownToServer[ref]; known || !foreign {
		c.wake()
	}
	c.objects[ref] = now
}

// hasVersion reports whether this version of an object or a newer one was seen. The newer one may be a
// recreated object of the same name.
func (c *controller) hasVersion(o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects[referenceTo(o)]
	return k != nil && !newer(o.GetResourceVersion(), k.version)
}

// newer reports whether version a of an object is newer than b.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil && a != b || order > 0
}

// sameDocument reports whether two versions of an object have the same document.
func sameDocument(a, b source.Metadata) bool {
	return a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations) && maps.Equal(a.Labels, b.Labels)
}

// decode decodes an object and its status.
func decode(u *unstructured.Unstructured) (*object, error) {
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	doc, defect := source.DecodeObject(text)
	if doc == nil {
		return nil, defect
	}
	k := &object{doc: doc, defect: defect, uses: secretNames(u.Object["spec"]), uid: u.GetUID(), version: u.GetResourceVersion()}
	if name, provided := accountOf(u.Object["spec"]); provided {
		k.account = &name
	}
	return k, k.encode(doc)
}

// encode sets the encoded status of k from obj.
func (k *object) encode(obj source.Object) (err error) {
	if k.full, err = source.EncodeStatus(obj); err != nil {
		return err
	}
	k.own, k.others = k.full, nil
	all := obj.Common().Conditions
	for _, condition := range all {
		if !source.Owned(condition.Type) {
			k.others = append(k.others, condition)
		}
	}
	if len(k.others) > 0 {
		obj.Common().Conditions = ownedConditions(all)
		k.own, err = source.EncodeStatus(obj)
		obj.Common().Conditions = all
	}
	return err
}

// ownedConditions returns the conditions that the controller owns.
func ownedConditions(all []source.Condition) []source.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(condition source.Condition) bool { return !source.Owned(condition.Type) })
}

// secretNames returns the names in all fields of a spec that end in secretRef.
func secretNames(spec any) (names []string) {
	switch spec := spec.(type) {
	case map[string]any:
		for field, value := range spec {
			ref, _ := value.(map[string]any)
			if name, ok := ref["name"].(string); ok && strings.HasSuffix(strings.ToLower(field), "secretref") {
				names = append(names, name)
			}
			names = append(names, secretNames(value)...)
		}
	case []any:
		for _, value := range spec {
			names = append(names, secretNames(value)...)
		}
	}
	return names
}

// exists reports whether an object exists in the cluster.
func (c *controller) exists(ref source.Reference) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[ref] != nil
}
