package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
)

// requestContext returns a context for one request to the API server.
func requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the API server did not answer"))
}

// maxConflicts is the maximum number of attempts to write a status, or the definitions.
const maxConflicts = 5

// Load implements [serve.Statuses]. It returns the status in the API server.
func (c *controller) Load(_ context.Context, obj source.Object) (source.State, error) {
	ref := source.ReferenceTo(obj)
	c.mu.Lock()
	k := c.objects[ref]
	c.mu.Unlock()
	if k == nil {
		return nil, source.DecodeStatus(obj, []byte("{}"))
	}
	if err := source.DecodeStatus(obj, k.full); err != nil {
		return nil, err
	}
	return c.states.load(ref), nil
}

// Save implements [serve.Statuses]. It drops the status of an object that was removed, was
// recreated, or now belongs to another controller.
func (c *controller) Save(ctx context.Context, obj source.Object, state source.State) error {
	ref, status := source.ReferenceTo(obj), obj.Common()
	status.Conditions = ownedConditions(status.Conditions)
	own, err := source.EncodeStatus(obj)
	if err != nil {
		return err
	}
	for range maxConflicts {
		c.mu.Lock()
		k := c.objects[ref]
		if k == nil || k.foreign || string(k.uid) != obj.Head().Metadata.UID {
			c.mu.Unlock()
			return nil
		}
		if bytes.Equal(own, k.own) || bytes.Equal(own, k.sent) && bytes.Equal(k.own, k.pruned) {
			c.mu.Unlock()
			status.Conditions = append(status.Conditions, k.others...)
			return c.states.save(ref, state)
		}
		k.sent, k.pruned = own, nil
		c.mu.Unlock()
		status.Conditions = append(ownedConditions(status.Conditions), k.others...)
		switch err = c.patch(ctx, ref, obj, k, own); {
		case err == nil:
			return c.states.save(ref, state)
		case !apierrors.IsConflict(err):
			return ignoreReasons(err, metav1.StatusReasonNotFound)
		}
		if err = c.read(ctx, ref); err != nil {
			return ignoreReasons(err, metav1.StatusReasonNotFound)
		}
	}
	return err
}

// patch writes the status of obj as a patch of the status in k.
func (c *controller) patch(ctx context.Context, ref source.Reference, obj source.Object, k *object, own []byte) error {
	full, err := source.EncodeStatus(obj)
	if err != nil {
		return err
	}
	diff, err := jsonpatch.CreateMergePatch(k.full, full)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": k.version}, "status": json.RawMessage(diff)})
	if err != nil {
		return err
	}
	if err := c.checkLease(); err != nil {
		return err
	}
	ctx, cancel := requestContext(ctx)
	defer cancel()
	u := emptyObject(c.group, ref.Kind)
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	if err := c.mgr.GetClient().Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, body)); err != nil {
		return err
	}
	c.observe(u, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.objects[ref]; now != nil && now.version == u.GetResourceVersion() && bytes.Equal(now.sent, own) {
		now.pruned = now.own
	}
	return nil
}

// read reads the current state of an object from the API server.
func (c *controller) read(ctx context.Context, ref source.Reference) error {
	ctx, cancel := requestContext(ctx)
	defer cancel()
	u := emptyObject(c.group, ref.Kind)
	if err := c.mgr.GetAPIReader().Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
		return err
	}
	c.observe(u, true)
	return nil
}

// ignoreReasons returns err, or nil if its reason is one of reasons.
func ignoreReasons(err error, reasons ...metav1.StatusReason) error {
	if slices.Contains(reasons, apierrors.ReasonForError(err)) {
		return nil
	}
	return err
}

// Remove implements [serve.Statuses].
func (c *controller) Remove(ref source.Reference) error { return c.states.save(ref, nil) }

// The methods below implement [serve.Statuses]. They store nothing: the feed has the objects, and
// their specs suspend them.

func (c *controller) Object(source.Reference) (source.Object, error) { return nil, fs.ErrNotExist }
func (c *controller) References() ([]source.Reference, error)        { return nil, nil }
func (c *controller) Removed() (map[source.Reference]time.Time, error) {
	return nil, nil
}
func (c *controller) SetRemoved(source.Reference, time.Time) error            { return nil }
func (c *controller) Suspension(source.Reference) (*source.Suspension, error) { return nil, nil }
func (c *controller) Suspend(source.Reference, source.Suspension) error       { return errSuspension }
func (c *controller) Resume(source.Reference) error                           { return errSuspension }

var errSuspension = errors.New("objects of a cluster are suspended by spec.suspend")

// states stores the state that kinds keep between runs in files KIND/NAMESPACE/NAME.
type states struct{ root *os.Root }

func stateFile(ref source.Reference) string {
	return path.Join(strings.ToLower(ref.Kind), ref.Namespace, ref.Name)
}

// load returns a state, or nil if it cannot be read.
func (s states) load(ref source.Reference) source.State {
	state, _ := s.root.ReadFile(stateFile(ref))
	return state
}

// save replaces a state, or removes it if it is empty.
func (s states) save(ref source.Reference, state source.State) (err error) {
	switch {
	case bytes.Equal(s.load(ref), state):
		return nil
	case len(state) > 0:
		err = durable.ReplaceIn(s.root, stateFile(ref), state)
	default:
		if err = s.root.Remove(stateFile(ref)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("state of %s: %w", ref, err)
	}
	return nil
}

// clean removes the states of all objects except those in but.
func (s states) clean(but map[source.Reference]types.UID) error {
	keep := make(map[string]bool, len(but))
	for ref := range but {
		keep[stateFile(ref)] = true
	}
	return fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || keep[name] {
			return err
		}
		return s.root.Remove(name)
	})
}
