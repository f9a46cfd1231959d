package main

import (
	"context"
	"os"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A supply is what charts are made of, for commands that store nothing: the
// version of a chart is in an index, or in the files of its source.
type supply struct {
	reconciler *source.Reconciler
	goods      map[source.Object]bool // what charts need, directly or not
	end        func()
}

// supply prepares a store that is gone afterwards, if there are charts among
// named. It returns them with what they are made of behind them.
func (s *session) supply(ctx context.Context, named []source.Object) ([]source.Object, *supply, error) {
	var charts []source.Object
	for _, obj := range named {
		if c, ok := obj.(*source.PkgChart); ok {
			c = ptr(*c)
			c.Spec.Suspend = false // its version is asked for all the same
			charts = append(charts, c)
		}
	}
	none := &supply{end: func() {}}
	if len(charts) == 0 {
		return named, none, nil
	}
	dir, err := os.MkdirTemp("", "headgate-*")
	if err != nil {
		return nil, nil, err
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	made := &supply{&source.Reconciler{Store: store}, map[source.Object]bool{}, func() {
		store.Close()
		os.RemoveAll(dir)
	}}
	s.env.Limits.Temp = store.Temp
	all, err := s.stock(ctx, charts, store)
	if err != nil {
		made.end()
		return nil, nil, err
	}
	seen := map[source.Object]bool{}
	for _, obj := range named {
		seen[obj] = true
	}
	for _, obj := range all[len(charts):] {
		made.goods[obj] = true
		if !seen[obj] {
			named = append(named[:len(named):len(named)], obj)
		}
	}
	return named, made, nil
}

// fetch brings the object of r up to date when charts are made of it.
func (g *supply) fetch(ctx context.Context, r *row, s *session) {
	if !g.goods[r.object] {
		return
	}
	r.reconcile(ctx, g.reconciler, s)
	if a := r.object.Artifact(); a != nil && r.err == nil {
		r.revision.ID = a.Revision
	}
}
