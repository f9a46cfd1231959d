package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/headgate-io/headgate/source"
)

// A lease is the leader election lease of this process. Only its holder runs sources.
type lease struct {
	resourcelock.Interface
	flags  *flags
	leases coordinationv1client.LeaseInterface // leases of the namespace

	mu        sync.Mutex
	renewed   time.Time // start of the last successful renewal
	newHolder string    // holder that took the lease from this process
}

// openLease prepares the lease that the flags describe. It does not acquire it.
func (f *flags) openLease(cluster *rest.Config) (*lease, error) {
	namespace := f.namespace
	if namespace == "" {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			return nil, usageError{errors.New("--enable-leader-election: set RUNTIME_NAMESPACE to the namespace of the lease")}
		}
		namespace = strings.TrimSpace(string(text))
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	own := rest.AddUserAgent(cluster, "leader-election") // has its own rate limits
	own.Timeout = max(f.renew/2, time.Second)
	api, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	config := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, f.leaseName(), nil, api, config)
	if err != nil {
		return nil, err
	}
	return &lease{Interface: lock, flags: f, leases: api.Leases(namespace)}, nil
}

// leaseBase returns the name of the lease of a controller without shards. For source-controller's
// group it is the name of source-controller's lease, so the two never run at the same time. Each
// selector has its own lease, as it has its own controller.
func (f *flags) leaseBase() string {
	name := "source-controller-leader-election"
	if f.group != source.ReferenceGroup {
		name = "headgate-controller-leader-election"
	}
	if f.selector != "" {
		name += fmt.Sprintf("-%x", sha256.Sum256([]byte(f.selector)))[:9]
	}
	return name
}

// leaseName returns the name of the lease.
func (f *flags) leaseName() string {
	if f.shards > 1 {
		return fmt.Sprintf("%s-%d-of-%d", f.leaseBase(), f.shard, f.shards)
	}
	return f.leaseBase()
}

// checkExclusive returns an error if a controller with another --shards holds a lease, because both would
// manage the same objects.
func (l *lease) checkExclusive(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the API server did not answer"))
	defer cancel()
	list, err := l.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for controllers of another --shards: %w", err)
	}
	for _, other := range list.Items {
		shards := l.flags.shardsOf(other.Name)
		if shards == 0 || shards == l.flags.shards {
			continue
		}
		if holder, until := holderOf(other); time.Now().Before(until) {
			return fmt.Errorf("--shards %d: the lease %s/%s of one of %d is held by %s until %s at least: scale to 0 before the number changes",
				l.flags.shards, other.Namespace, other.Name, shards, holder, until.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// shardsOf returns the --shards of the controllers that use a lease of this name, or 0 for leases
// of other programs.
func (f *flags) shardsOf(name string) (shards int) {
	base, shard := f.leaseBase(), 0
	if name == base {
		return 1
	}
	rest, ours := strings.CutPrefix(name, base+"-")
	if n, err := fmt.Sscanf(rest, "%d-of-%d", &shard, &shards); !ours || n != 2 || err != nil || rest != fmt.Sprintf("%d-of-%d", shard, shards) {
		return 0
	}
	return shards
}

// holderOf returns the holder of a lease and the time when it expires.
func holderOf(l coordinationv1.Lease) (holder string, until time.Time) {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return "", time.Time{}
	}
	return *s.HolderIdentity, s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
}

// Create implements [resourcelock.Interface].
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements [resourcelock.Interface].
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(record, func() error { return l.Interface.Update(ctx, record) })
}

// Get implements [resourcelock.Interface].
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && !l.renewed.IsZero() && record.HolderIdentity != l.Identity() {
		l.newHolder = record.HolderIdentity
	}
	return record, raw, err
}

// renew writes a record. A record without a holder releases the lease.
func (l *lease) renew(record resourcelock.LeaderElectionRecord, write func() error) error {
	begun := time.Now()
	err := write()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case record.HolderIdentity != l.Identity():
		l.renewed = time.Time{}
	case err == nil:
		l.renewed = begun
	}
	return err
}

// checkHeld returns an error if another process may hold the lease. Other processes wait for the lease
// duration after the last renewal that they saw.
func (l *lease) checkHeld() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.newHolder != "":
		return fmt.Errorf("the lease %s is lost: %s holds it", l.Describe(), l.newHolder)
	case l.renewed.IsZero():
		return fmt.Errorf("the lease %s was given back", l.Describe())
	case time.Since(l.renewed) > l.flags.lease:
		return fmt.Errorf("the lease %s is lost: it was not renewed since %s", l.Describe(), l.renewed.UTC().Format(time.RFC3339))
	}
	return nil
}
