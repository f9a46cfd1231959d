package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

// keptFiles is the keeper of a store that no server keeps: the saved documents
// and suspensions, and the journal of the last server.
type keptFiles struct {
	dir    string
	ledger *source.Ledger
	warn   func(error)
	told   string // the trouble that was told last
}

// lookAgain is how often files are looked at for changes.
const lookAgain = time.Second

func (k *keptFiles) sources(_ context.Context, refs []source.Reference, whole bool) ([]api.Source, error) {
	set, err := k.ledger.List()
	k.tell(err)
	var found []api.Source
	for _, obj := range set.Objects {
		ref := source.ReferenceTo(obj)
		if !selects(refs, ref) {
			continue
		}
		hold, err := k.ledger.Suspension(ref)
		if err != nil {
			k.tell(err)
		}
		s := savedSource(obj, hold)
		if whole {
			text, err := source.EncodeYAML(source.Masked(obj))
			if err != nil {
				return nil, err
			}
			s.Document = string(text)
		}
		found = append(found, s)
	}
	slices.SortFunc(found, func(a, b api.Source) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// tell warns of what cannot be read, once.
func (k *keptFiles) tell(err error) {
	if err == nil {
		k.told = ""
		return
	}
	if text := err.Error(); text != k.told {
		k.told = text
		k.warn(err)
	}
}

// savedSource says of a saved document what a server says of an object.
func savedSource(obj source.Object, hold *source.Suspension) api.Source {
	v := serve.View{Object: obj, Phase: serve.Idle, Suspension: hold}
	switch {
	case hold != nil || obj.Plan().Suspend:
		v.Phase = serve.Suspended
	case obj.Common().Condition(source.StalledCondition).Status == "True":
		v.Phase = serve.Stalled
	}
	return serve.Summary(v)
}

func (*keptFiles) defects(context.Context) ([]string, error) { return nil, nil }

func (k *keptFiles) watch(ctx context.Context, refs []source.Reference, each func(api.Notice) error) error {
	known := map[source.Reference]api.Source{}
	for first := true; ; first = false {
		now, err := k.sources(ctx, refs, false)
		if err != nil {
			return err
		}
		gone := known
		known = map[source.Reference]api.Source{}
		for _, s := range now {
			old, was := gone[sourceRef(s)]
			delete(gone, sourceRef(s))
			known[sourceRef(s)] = s
			if was && reflect.DeepEqual(old, s) {
				continue
			}
			if err := each(api.Notice{Source: &s}); err != nil {
				return err
			}
		}
		for _, s := range gone {
			if err := each(api.Notice{Gone: &api.Gone{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}}); err != nil {
				return err
			}
		}
		if first {
			if err := each(api.Notice{Synced: true}); err != nil {
				return err
			}
		}
		if retry.Sleep(ctx, lookAgain) != nil {
			return nil
		}
	}
}

func (k *keptFiles) suspend(ctx context.Context, ref source.Reference, why api.Change) (api.Source, error) {
	s, err := one(ctx, k, ref)
	if err != nil {
		return s, err
	}
	if err := k.ledger.Suspend(sourceRef(s), source.Suspension{By: why.By, Reason: why.Reason, Since: time.Now()}); err != nil {
		return s, err
	}
	return one(ctx, k, sourceRef(s))
}

func (k *keptFiles) resume(ctx context.Context, ref source.Reference, _ api.Change) (api.Source, error) {
	s, err := one(ctx, k, ref)
	if err != nil {
		return s, err
	}
	err = k.ledger.Resume(sourceRef(s))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s, err = one(ctx, k, sourceRef(s)); err == nil && s.Suspended {
		err = fmt.Errorf("%s is suspended by its spec: set spec.suspend to false", sourceName(ref))
	}
	return s, err
}

func (k *keptFiles) events(context.Context, eventQuery) ([]api.Event, error) {
	return nil, failed(fmt.Errorf("no server has the store %s: start one with headgate serve, or name it with --server URL", k.dir))
}

func (k *keptFiles) follow(ctx context.Context, q eventQuery, _ func(api.Event) error) error {
	_, err := k.events(ctx, q)
	return err
}

// decoded returns the object of a document.
func decoded(document string) (source.Object, error) {
	set := new(source.Set)
	if err := set.Decode("status", bytes.NewReader([]byte(document))); err != nil {
		return nil, err
	}
	if len(set.Objects) != 1 {
		return nil, fmt.Errorf("%d objects, want one", len(set.Objects))
	}
	return set.Objects[0], nil
}
