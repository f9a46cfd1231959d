// Package controller keeps the sources of a Kubernetes cluster up to date. The API server says which objects there
// are and holds their statuses; the server of package serve does the work.
//
//   - An object is decoded as [source.DecodeObject] does. One whose spec cannot be used is stalled with the reason
//     InvalidSpec; it neither stops the others nor loses its artifact.
//   - A status is written by a merge patch of the subresource that carries metadata.resourceVersion, and only if it
//     changed. Conditions that are not the controller's own are kept. After a conflict the object is read again. A
//     status that another program changed is repaired by a run; that of a suspended object when it is resumed.
//   - What a kind remembers between runs is in files below Options.StateDir. It may be lost.
//   - The content of a Secret is read when a run asks for it and not kept. The metadata of Secrets and service accounts
//     is watched, unless Options.Unwatched: an object that uses one runs when its content changes.
//   - With Options.Identities an object acts as the service account that it names, by tokens that the API server issues.
//   - Artifacts of an object that was deleted go at once, and with them the finalizer of source-controller. A fetch
//     that is under way ends.
//   - Objects outside of Options.Scope are inputs of those in it: their artifacts are fetched as Options.Serve.Artifacts
//     allows. Nothing is written to them, and no files of them are removed.
//   - Events become Events of Kubernetes, but for traces.
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

// Options say what [Setup] puts into a manager.
type Options struct {
	// Serve says how sources are kept up to date. Store and Origin are required. Feed and Statuses are the
	// controller's; Retention is 1s unless it is set.
	Serve    serve.Config
	Group    string // of the objects; default [source.ReferenceGroup]
	Scope    Scope  // which objects are kept up to date
	StateDir string // required; made when it is not there
	Name     string // of the controller in Events; default source-controller

	// Begin is called when the lease is held, before anything runs; its error ends the manager. Nil: nothing is.
	Begin func(context.Context) error
	// Held returns an error if the lease is lost. It is asked before each write. Nil: it is never lost.
	Held func() error

	// Unwatched has Secrets and service accounts read and not watched: a changed one counts at the next interval.
	Unwatched bool
	// Identities has spec.serviceAccountName with a provider name the identity that is shown to it. Without it such
	// an object is stalled. DefaultAccount is the name for objects without one, "" for the identity of the controller.
	Identities     bool
	DefaultAccount string
}

// ErrNotReady says why a replica serves nothing.
var ErrNotReady = errors.New("the sources are not restored, or another replica has the lease")

// Setup has the manager keep the sources of its cluster up to date. The cache of the manager should be one of
// [CacheOptions]. What the server counts is in the metrics of the manager as long as it runs.
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
		scope: o.Scope, begin: o.Begin, held: o.Held,
		objects: make(map[source.Reference]*object), changes: make(map[source.Reference]serve.Trigger),
		deleted: make(map[source.Reference]deletion), secrets: make(map[types.NamespacedName]bool), dirty: make(chan struct{}, 1),
		unwatched: o.Unwatched, identities: o.Identities, defaultAccount: o.DefaultAccount,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.held == nil {
		c.held = func() error { return nil }
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
		if c.exists(r.Object) { // else its series would stay
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

// CacheOptions returns the options of a manager's cache for [Setup], in a namespace, "" for every one. Of sources the cache
// holds metadata that only the controller reads: others read sources from the API server. Of Secrets and service accounts
// it holds the names.
func CacheOptions(scope Scope, namespace string) cache.Options {
	bare := func(in any) (any, error) {
		if o, ok := in.(client.Object); ok {
			o.SetManagedFields(nil)
			o.SetLabels(nil)
			o.SetAnnotations(nil) // kubectl keeps a copy of the Secret among them
			o.SetOwnerReferences(nil)
		}
		return in, nil
	}
	names := cache.ByObject{Transform: bare}
	options := cache.Options{
		DefaultTransform: scope.keep, // ByObject would want each kind to be in the cluster
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: names, &corev1.ServiceAccount{}: names},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return options
}

// A controller is the [serve.Feed], the [serve.Statuses] and the [source.Secrets] of a server.
type controller struct {
	mgr    manager.Manager
	server *serve.Server
	group  string
	name   string
	states states
	scope  Scope
	begin  func(context.Context) error
	held   func() error
	log    *slog.Logger
	events record.EventRecorder

	unwatched      bool
	identities     bool
	defaultAccount string

	mu      sync.Mutex
	objects map[source.Reference]*object
	changes map[source.Reference]serve.Trigger // objects that have to run
	deleted map[source.Reference]deletion      // that have the finalizer
	secrets map[types.NamespacedName]bool      // that changed, and service accounts
	told    map[source.Reference]types.UID     // the objects that the server knows
	dirty   chan struct{}                      // there is something new in the above
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
