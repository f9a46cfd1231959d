package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A snapshot is what a bucket held when it was listed.
type snapshot struct {
	driver Driver
	access *Access  // closed with the snapshot
	list   *listing // without .sourceignore; its keys are paths, none a directory of another
	rules  *artifact.Rules
	ignore *Object  // the object .sourceignore, nil when there is none
	text   string   // of it
	notes  []string // for the report
}

const (
	progressEvery = 5000 // objects
	maxSearch     = 1000 // objects that are looked at for .sourceignore
)

// fill lists the bucket into s and now.
func (o *Origin) fill(ctx context.Context, s *snapshot, before memory, now *memory) (err error) {
	spec := &o.bucket.Spec
	if !inPrefix(ignoreFile, spec.Prefix) { // before the listing: credentials that expire fail that, too
		if err := o.search(ctx, s); err != nil {
			return err
		}
	}
	if err := o.list(ctx, s); err != nil {
		return err
	}
	if now.Ignore, err = o.readRules(ctx, s, before, now.Place); err != nil {
		return err
	}
	if now.Ignore != nil {
		s.text = now.Ignore.Text
	}
	if s.rules, err = ignoreOf(spec, s.text).Compile(ctx, nil); err != nil {
		return &source.StepError{Step: source.StepResolve, Reason: "SourceIgnoreError", Err: err}
	}
	listed := s.list.len()
	chosen := selection{list: s.list, rules: s.rules, limits: limitsOf(o.env.Limits), ignore: s.ignore != nil}
	if now.Revision, err = chosen.choose(ctx); err != nil {
		return err
	}
	if n := chosen.markers.count; n > 0 {
		s.notes = append(s.notes, fmt.Sprintf("the content of %d directory markers is left out: %s", n, &chosen.markers))
	}
	if listed == 0 || chosen.count == 0 && s.ignore == nil {
		s.notes = append(s.notes, fmt.Sprintf("no object is in the artifact: the bucket lists %d whose keys begin with spec.prefix %q", listed, spec.Prefix))
	}
	return nil
}

// list lists the objects whose keys begin with spec.prefix.
func (o *Origin) list(ctx context.Context, s *snapshot) error {
	progress, err := o.progress("listing")
	if err != nil {
		return err
	}
	prefix := o.bucket.Spec.Prefix
	return o.within(ctx, "list objects", func(ctx context.Context) error {
		found, err := o.listed(ctx, s, prefix, func(ctx context.Context) (inventory, error) {
			return takeAll(ctx, s.driver, prefix, progress)
		})
		if s.list = found.list; found.ignore != nil {
			s.ignore = found.ignore
		}
		return err
	})
}

// takeAll lists the objects whose keys begin with prefix.
func takeAll(ctx context.Context, from Driver, prefix string, progress func(int64)) (found inventory, err error) {
	l := new(listing)
	found.list = l
	for object, err := range from.List(ctx, prefix) {
		if err == nil {
			err = l.take(object, prefix)
		}
		if err != nil {
			return found, after(l.len(), err)
		}
		if object.Key == ignoreFile {
			if found.ignore != nil {
				return found, fmt.Errorf("object %s is listed twice", ignoreFile)
			}
			ignore := object
			found.ignore = &ignore
		}
		if l.len()%progressEvery == 0 {
			progress(int64(l.len()))
		}
	}
	return found, after(l.len(), context.Cause(ctx)) // a listing that was cut short is none
}

// after says how far a listing came before it failed.
func after(n int, err error) error {
	if answer, ok := errors.AsType[*StatusError](err); errors.Is(err, fs.ErrNotExist) && (!ok || answer.Hint == "") {
		err = fmt.Errorf("there is no such bucket, check spec.bucketName and spec.endpoint: %w", err)
	}
	if n == 0 || err == nil {
		return err
	}
	return fmt.Errorf("after %d objects: %w", n, err)
}

// take adds o, whose key should begin with prefix.
func (l *listing) take(o Object, prefix string) error {
	if !inPrefix(o.Key, prefix) {
		return fmt.Errorf("the store lists the object %s, which does not begin with spec.prefix", quoted(o.Key))
	}
	return l.add(o)
}

func inPrefix(key, prefix string) bool { return strings.HasPrefix(key, prefix) }

// progress returns what reports how many objects a phase has done.
func (o *Origin) progress(phase string) (func(done int64), error) {
	if o.env.Progress == nil {
		return func(int64) {}, nil
	}
	name, err := source.Address(o.bucket)
	return func(done int64) {
		o.env.Progress(source.Progress{Object: name, Phase: phase, Done: done, Unit: "objects"})
	}, err
}

// search looks for .sourceignore, which spec.prefix hides. Who may not see it has no rules.
func (o *Origin) search(ctx context.Context, s *snapshot) error {
	err := o.within(ctx, "look for "+ignoreFile, func(ctx context.Context) error {
		seen := 0
		for object, err := range s.driver.List(ctx, ignoreFile) {
			if err != nil {
				return after(0, err)
			}
			if object.Key == ignoreFile {
				found := object
				s.ignore = &found
				return nil
			}
			if seen++; seen == maxSearch {
				return nil
			}
		}
		return context.Cause(ctx)
	})
	if errors.Is(err, fs.ErrPermission) {
		s.notes = append(s.notes, fmt.Sprintf("whether there is an object %s could not be seen, so its rules do not apply: %v", ignoreFile, err))
		return nil
	}
	return err
}

// readRules returns what the object .sourceignore holds, nil when there is none.
func (o *Origin) readRules(ctx context.Context, s *snapshot, before memory, place string) (*ruleEntry, error) {
	switch {
	case s.ignore == nil:
		return nil, nil
	case before.Ignore != nil && before.Place == place && before.Ignore.ETag == s.ignore.ETag && int64(len(before.Ignore.Text)) == s.ignore.Size:
		return before.Ignore, nil
	case tagProblem(s.ignore.ETag) != "":
		return nil, fmt.Errorf("object %s %s", ignoreFile, tagProblem(s.ignore.ETag))
	case s.ignore.Size > maxRules:
		return nil, fmt.Errorf("object %s has %d bytes, at most %d are allowed: shorten it", ignoreFile, s.ignore.Size, maxRules)
	}
	text := ""
	err := o.within(ctx, "read "+ignoreFile, func(ctx context.Context) (err error) {
		body := receive(ctx, s.driver, *s.ignore)
		defer body.Close()
		text, err = readRules(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", ignoreFile, err)
	}
	return &ruleEntry{s.ignore.ETag, text}, nil
}
