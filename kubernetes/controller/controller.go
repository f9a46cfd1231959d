// Package controller keeps the sources of a Kubernetes cluster up to date. The API server stores the objects and
// their statuses; the server of package serve does the work.
//
//   - An object is decoded as [source.DecodeObject] does. An object with an invalid spec is stalled with the reason
//     InvalidSpec. It keeps its artifact and does not affect other objects.
//   - A status is written only if it changed, by a merge patch of the subresource with metadata.resourceVersion.
//     Conditions of other controllers are kept. After a conflict the object is read again. If another program changes
//     a status, a run repairs it; for a suspended object that happens when it is resumed.
//   - The state that a kind keeps between runs is in files below Options.StateDir. It may be lost.
//   - Secret data is read when a run needs it, and is not cached. The metadata of Secrets and service accounts is
//     watched unless Options.Unwatched is set: objects that use a changed one run immediately.
//   - With Options.Identities an object acts as the service account that it names, with tokens from the API server.
//   - When an object is deleted, its artifacts and the finalizer of source-controller are removed immediately, and a
//     running fetch is canceled.
//   - Objects outside Options.Scope are inputs of the objects in it: their artifacts are fetched as far as
//     Options.Serve.Artifacts allows. The controller does not write to them or remove their files.
//   - Events become Events of Kubernetes, except for traces.
//
// Only the holder of the manager's lease runs sources. The manager is ready when the statuses are restored.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// Options configure the controller that [Setup] adds to a manager.
type Options struct {
	// Serve configures how sources are kept up to date. Store and Origin are required. Setup
	// replaces Feed and Statuses. Retention defaults to 1s.
	Serve    serve.Config
	Group    string // of the objects; default [source.ReferenceGroup]
	Scope    Scope  // objects to keep up to date
	StateDir string // required; created if it is missing
	Name     string // of the controller in Events; default source-controller

	// Begin is called after the lease is acquired, before anything runs. An error stops the
	// manager. It may be nil.
	Begin func(context.Context) error
	// Held returns an error if the lease is lost. It is called before each write. If it is nil, the
	// lease is never lost.
	Held func() error

	// Unwatched disables watching Secrets and service accounts. A changed one takes effect at the
	// next interval.
	Unwatched bool
	// Identities enables the identity of spec.serviceAccountName for cloud providers. Without it
	// such an object is stalled. DefaultAccount is the account of objects that name none; "" is the
	// identity of the controller.
	Identities     bool
	DefaultAccount string
}

// ErrNotReady tells why a replica does not serve requests.
var ErrNotReady = errors.New("the sources are not restored, or another replica has the lease")

// Setup adds a controller to the manager that keeps the sources of its cluster up to date. The
// manager's cache should use [CacheOptions]. The metrics of the server are in the manager's
// registry while the controller runs.
func Setup(mgr manager.Manager, o Options) (*serve.Server, error) {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("Options.StateDir: %w", err)
	}
	root, err := os.OpenRoot(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("Options.StateDir: %w", err)
	}
	c := &controller{
		mgr: mgr, group: cmp.Or(o.Group, source.ReferenceGroup), name: cmp.Or(o.Name, "source-controller"), states: states{root}, log: o.Serve.Log,
		scope: o.Scope, begin: o.Begin, checkLease: o.Held,
		objects: make(map[source.Reference]*object), changes: make(map[source.Reference]serve.Trigger),
		deleted: make(map[source.Reference]deletion), secrets: make(map[types.NamespacedName]bool), dirty: make(chan struct{}, 1),
		unwatched: o.Unwatched, identities: o.Identities, defaultAccount: o.DefaultAccount,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.checkLease == nil {
		c.checkLease = func() error { return nil }
	}
	config := o.Serve
	config.Feed, config.Statuses, config.Env.Accounts = c, c, c.account
	config.Notify.Controller = c.name
	config.Retention = cmp.Or(config.Retention, time.Second)
	config.Emit = func(e source.Event) {
		c.record(e)
		if o.Serve.Emit != nil {
			o.Serve.Emit(e)
		}
	}
	config.Observe = func(r serve.Run) {
		if c.exists(r.Object) { // otherwise the series of a removed object would stay
			durations.WithLabelValues(r.Kind, r.Object.Name, r.Object.Namespace).Observe(r.Took.Seconds())
		}
		if o.Serve.Observe != nil {
			o.Serve.Observe(r)
		}
	}
	server, err := serve.New(config)
	if err != nil {
		return nil, err
	}
	c.server = server
	ready := func(*http.Request) error {
		if !server.Ready() {
			return ErrNotReady
		}
		return nil
	}
	return server, errors.Join(mgr.AddReadyzCheck("sources", ready), mgr.Add(c))
}

// CacheOptions returns cache options for a manager that [Setup] uses. The cache is limited to a
// namespace; "" means all. It holds only metadata of sources, in a form that only the controller
// uses: other code must read sources from the API server. Of Secrets and service accounts it holds
// only the names.
func CacheOptions(scope Scope, namespace string) cache.Options {
	bare := func(in any) (any, error) {
		if o, ok := in.(client.Object); ok {
			o.SetManagedFields(nil)
			o.SetLabels(nil)
			o.SetAnnotations(nil) // kubectl stores a copy of the Secret there
			o.SetOwnerReferences(nil)
		}
		return in, nil
	}
	names := cache.ByObject{Transform: bare}
	options := cache.Options{
		DefaultTransform: scope.transform, // ByObject would require every kind to exist in the cluster
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: names, &corev1.ServiceAccount{}: names},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return options
}

// A controller implements [serve.Feed], [serve.Statuses] and [source.Secrets] for a server.
type controller struct {
	mgr        manager.Manager
	server     *serve.Server
	group      string
	name       string
	states     states
	scope      Scope
	begin      func(context.Context) error
	checkLease func() error
	log        *slog.Logger
	events     record.EventRecorder

	unwatched      bool
	identities     bool
	defaultAccount string

	mu            sync.Mutex
	objects       map[source.Reference]*object
	changes       map[source.Reference]serve.Trigger // objects that must run
	deleted       map[source.Reference]deletion      // deleted objects with the finalizer
	secrets       map[types.NamespacedName]bool      // changed Secrets and service accounts
	knownToServer map[source.Reference]types.UID     // objects that the server knows
	dirty         chan struct{}                      // signals changes of the maps above
}

// Start implements [manager.Runnable]. It returns when ctx ends.
func (c *controller) Start(ctx context.Context) error {
	defer c.states.root.Close()
	if c.begin != nil {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	stop, err := c.startEvents(ctx)
	if err != nil {
		return err
	}
	defer stop()
	unregister, err := register(c.server)
	if err != nil {
		c.log.Warn("metrics", "problem", err.Error())
	}
	defer unregister()
	return c.server.Run(ctx)
}
