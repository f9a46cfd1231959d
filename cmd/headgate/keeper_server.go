package main

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// keptServer is the keeper of a server that runs.
type keptServer struct {
	client *api.Client
	flags  *serverFlags
	as     api.Change // who calls
}

// filter selects on the server what one reference selects; of several the
// client selects.
func filterOf(refs []source.Reference) (f api.Filter) {
	if len(refs) == 1 {
		f.Kind, f.Namespace, f.Name = refs[0].Kind, refs[0].Namespace, refs[0].Name
	}
	return f
}

func (k *keptServer) sources(ctx context.Context, refs []source.Reference, whole bool) ([]api.Source, error) {
	ctx, cancel := k.flags.bounded(ctx)
	defer cancel()
	all, _, err := k.client.Sources(ctx, filterOf(refs))
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(s api.Source) bool { return !selects(refs, sourceRef(s)) })
	if !whole {
		return found, nil
	}
	for i, s := range found {
		if found[i], err = k.client.Source(ctx, sourceRef(s)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (k *keptServer) defects(ctx context.Context) ([]string, error) {
	ctx, cancel := k.flags.bounded(ctx)
	defer cancel()
	stats, err := k.client.Stats(ctx)
	return stats.Defects, err
}

func (k *keptServer) watch(ctx context.Context, refs []source.Reference, each func(api.Notice) error) error {
	return endedWatch(ctx, k.client.Watch(ctx, filterOf(refs), func(n api.Notice) error {
		switch {
		case n.Source != nil && !selects(refs, sourceRef(*n.Source)):
		case n.Gone != nil && !selects(refs, sourceRef(api.Source{Kind: n.Gone.Kind, Namespace: n.Gone.Namespace, Name: n.Gone.Name})):
		default:
			return each(n)
		}
		return nil
	}))
}

// endedWatch returns nil for a watch that ended with its context.
func endedWatch(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

func (k *keptServer) suspend(ctx context.Context, ref source.Reference, why api.Change) (api.Source, error) {
	s, err := one(ctx, k, ref)
	if err != nil {
		return s, err
	}
	ctx, cancel := k.flags.bounded(ctx)
	defer cancel()
	return k.client.Suspend(ctx, sourceRef(s), why)
}

func (k *keptServer) resume(ctx context.Context, ref source.Reference, why api.Change) (api.Source, error) {
	s, err := one(ctx, k, ref)
	if err != nil {
		return s, err
	}
	ctx, cancel := k.flags.bounded(ctx)
	defer cancel()
	return k.client.Resume(ctx, sourceRef(s), why)
}

func (k *keptServer) events(ctx context.Context, q eventQuery) ([]api.Event, error) {
	ctx, cancel := k.flags.bounded(ctx)
	defer cancel()
	all, err := k.client.Events(ctx, q.api())
	if err != nil {
		return nil, err
	}
	return q.last(slices.DeleteFunc(all, func(e api.Event) bool { return !q.selects(e.Event) })), nil
}

func (k *keptServer) follow(ctx context.Context, q eventQuery, each func(api.Event) error) error {
	return endedWatch(ctx, k.client.FollowEvents(ctx, q.api(), func(e api.Event) error {
		if !q.selects(e.Event) {
			return nil
		}
		return each(e)
	}))
}
