package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

const (
	maxListing    = 512 << 20 // bytes of all objects, about 4 million; ends an endless listing that does not repeat itself
	objectSize    = 64        // bytes counted for an object in addition to its strings
	progressEvery = 5000      // objects between progress reports
	maxSearch     = 1000      // objects examined when looking for .sourceignore
)

// ignoreFile is the key of the object that holds ignore rules.
const ignoreFile = ".sourceignore"

// A snapshot describes the content of a bucket at the time it was listed.
type snapshot struct {
	driver Driver
	access *Access // closed with the snapshot
	state  state
	rules  *artifact.Rules
	selection
}

// revision returns the revision of s (reference A4).
func (s *snapshot) revision() source.Revision {
	return source.Revision{ID: "sha256:" + s.state.Revision, File: s.state.Revision + ".tar.gz"}
}

// fill lists the bucket into s.
func (o *Origin) fill(ctx context.Context, s *snapshot, before state) (err error) {
	spec := &o.bucket.Spec
	var rules *Object
	if !strings.HasPrefix(ignoreFile, spec.Prefix) { // before the listing, so that credentials that expire meanwhile fail the listing too
		if rules, err = o.search(ctx, s); err != nil {
			return err
		}
	}
	listed, err := o.list(ctx, s)
	if err != nil {
		return err
	}
	objects := listed.objects
	if rules != nil {
		objects = append(objects[:len(objects):len(objects)], *rules)
	}
	for i := range objects {
		if objects[i].Key == ignoreFile {
			if s.state.Ignore, err = o.readRules(ctx, s, before, objects[i]); err != nil {
				return err
			}
			break
		}
	}
	if s.rules, err = ignoreOf(spec, s.state.Ignore.text()).Compile(ctx, nil); err != nil {
		return Failed("SourceIgnoreError", err)
	}
	if s.state.Revision, err = s.choose(ctx, objects, s.rules, limitsOf(o.env.Limits)); err != nil {
		return err
	}
	if len(listed.objects) == 0 || len(s.files) == 0 {
		s.notes = append(s.notes, fmt.Sprintf("no object is in the artifact: the bucket lists %d whose keys begin with spec.prefix %q", len(listed.objects), spec.Prefix))
	}
	return nil
}

// A listing holds the listed objects of a bucket.
type listing struct {
	objects []Object
	size    int64
	keys    cycleDetector
}

// Weight returns the size of a listing in bytes. A [source.Share] passes a large listing
// to the callers that are waiting for it, but does not keep it.
func (l *listing) Weight() int64 { return l.size }

// list lists the objects whose keys begin with spec.prefix. Origins that request the
// same listing with the same credentials share it. An origin that lists a second time
// gets a new listing, because the first one is outdated.
func (o *Origin) list(ctx context.Context, s *snapshot) (l *listing, err error) {
	progress, err := o.progress("listing", 0)
	if err != nil {
		return nil, err
	}
	prefix := o.bucket.Spec.Prefix
	list := func(ctx context.Context) (any, error) {
		if o.env.Share != nil {
			defer s.access.close() // the listing may outlive this origin's request
		}
		return listAll(ctx, s.driver, prefix, progress)
	}
	o.mu.Lock()
	since := o.env.Since
	if o.listed {
		since = time.Now()
	}
	o.listed = true
	o.mu.Unlock()
	err = o.within(ctx, "list objects", func(ctx context.Context) error {
		answer, err := o.env.Share.Do(ctx, "bucket "+s.access.identityHash(o.bucket.Metadata.Namespace)+" "+prefix, since, list)
		l, _ = answer.(*listing)
		return err
	})
	return l, err
}

// listAll lists the objects whose keys begin with prefix.
func listAll(ctx context.Context, from Driver, prefix string, progress func(int)) (*listing, error) {
	l := new(listing)
	for object, err := range from.List(ctx, prefix) {
		if err == nil {
			err = l.add(object, prefix)
		}
		if err != nil {
			return nil, listingError(len(l.objects), err)
		}
		if len(l.objects)%progressEvery == 0 {
			progress(len(l.objects))
		}
	}
	return l, listingError(len(l.objects), context.Cause(ctx)) // reject a listing that was cut short
}

// add appends o. It returns an error if the key does not begin with prefix, if the
// store repeats its listing, or if the listing exceeds maxListing.
func (l *listing) add(o Object, prefix string) error {
	l.size += int64(len(o.Key) + len(o.ETag) + len(o.Version) + objectSize)
	switch {
	case !strings.HasPrefix(o.Key, prefix):
		return fmt.Errorf("the store lists the object %s, which does not begin with spec.prefix", quoted(o.Key))
	case l.keys.repeats(o.Key):
		return fmt.Errorf("the store repeats its listing: object %s was listed before", quoted(o.Key))
	case l.size > maxListing:
		return fmt.Errorf("more than %d bytes of keys and ETags: narrow spec.prefix", maxListing)
	}
	l.objects = append(l.objects, o)
	return nil
}

// listingError wraps the error of a listing that failed after n objects. It returns nil for nil.
func listingError(n int, err error) error {
	if answer, ok := errors.AsType[*StatusError](err); errors.Is(err, fs.ErrNotExist) && (!ok || answer.Hint == "") {
		err = fmt.Errorf("there is no such bucket, check spec.bucketName and spec.endpoint: %w", err)
	}
	if n == 0 || err == nil {
		return err
	}
	return fmt.Errorf("after %d objects: %w", n, err)
}

// search looks for .sourceignore outside spec.prefix. It returns nil if there is no such
// object, and, with a note, if the credentials may not list it.
func (o *Origin) search(ctx context.Context, s *snapshot) (found *Object, err error) {
	err = o.within(ctx, "look for "+ignoreFile, func(ctx context.Context) error {
		seen := 0
		for object, err := range s.driver.List(ctx, ignoreFile) {
			if err != nil {
				return listingError(0, err)
			}
			if object.Key == ignoreFile {
				found = &object
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
		return nil, nil
	}
	return found, err
}

// readRules returns the content of .sourceignore. It reads the object only if it differs
// from the one in before.
func (o *Origin) readRules(ctx context.Context, s *snapshot, before state, object Object) (*rulesFile, error) {
	switch known := before.Ignore; {
	case known != nil && before.Bucket == s.state.Bucket && known.ETag == object.ETag && int64(len(known.Text)) == object.Size:
		return known, nil
	case tagProblem(object.ETag) != "":
		return nil, fmt.Errorf("object %s %s", ignoreFile, tagProblem(object.ETag))
	case object.Size > maxRules:
		return nil, fmt.Errorf("object %s has %d bytes, at most %d are allowed: shorten it", ignoreFile, object.Size, maxRules)
	}
	text := ""
	err := o.within(ctx, "read "+ignoreFile, func(ctx context.Context) (err error) {
		body := &objectReader{ctx: ctx, driver: s.driver, object: object}
		defer body.Close()
		text, err = readRules(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", ignoreFile, err)
	}
	return &rulesFile{object.ETag, text}, nil
}
