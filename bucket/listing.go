package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

const (
	maxListing    = 512 << 20 // bytes of all objects, 4 million about; ends a listing that goes on for ever without repeating itself
	objectSize    = 64        // bytes of an object beside its texts
	progressEvery = 5000      // objects
	maxSearch     = 1000      // objects that are looked at for .sourceignore
)

// ignoreFile is the key of the object that holds ignore rules.
const ignoreFile = ".sourceignore"

// A snapshot is what a bucket held when it was listed.
type snapshot struct {
	driver Driver
	access *Access // closed with the snapshot
	state  state
	rules  *artifact.Rules
	selection
}

// revision spells the revision (reference A4).
func (s *snapshot) revision() source.Revision {
	return source.Revision{ID: "sha256:" + s.state.Revision, File: s.state.Revision + ".tar.gz"}
}

// fill lists the bucket into s.
func (o *Origin) fill(ctx context.Context, s *snapshot, before state) (err error) {
	spec := &o.bucket.Spec
	var rules *Object
	if !strings.HasPrefix(ignoreFile, spec.Prefix) { // before the listing: credentials that expire fail that, too
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
		return stepError("SourceIgnoreError", err)
	}
	if s.state.Revision, err = s.choose(ctx, objects, s.rules, limitsOf(o.env.Limits)); err != nil {
		return err
	}
	if len(listed.objects) == 0 || len(s.files) == 0 {
		s.notes = append(s.notes, fmt.Sprintf("no object is in the artifact: the bucket lists %d whose keys begin with spec.prefix %q", len(listed.objects), spec.Prefix))
	}
	return nil
}

// A listing is the objects of a bucket as they were listed.
type listing struct {
	objects []Object
	size    int64
	keys    cycle
}

// Weight tells the bytes of a listing: a large one is for those who wait for it alone.
func (l *listing) Weight() int64 { return l.size }

// list lists the objects whose keys begin with spec.prefix: once for all origins
// that ask for the same with the same credentials. An origin that lists again
// does so because what it saw is not what there is.
func (o *Origin) list(ctx context.Context, s *snapshot) (l *listing, err error) {
	progress, err := o.progress("listing", 0)
	if err != nil {
		return nil, err
	}
	prefix := o.bucket.Spec.Prefix
	list := func(ctx context.Context) (any, error) {
		if o.env.Share != nil {
			defer s.access.close() // it may go on for others when this origin is done
		}
		return takeAll(ctx, s.driver, prefix, progress)
	}
	identity, err := s.access.identity(o.bucket.Metadata.Namespace)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	since := o.env.Since
	if o.listed {
		since = time.Now()
	}
	o.listed = true
	o.mu.Unlock()
	err = o.within(ctx, "list objects", func(ctx context.Context) error {
		answer, err := o.env.Share.Do(ctx, "bucket "+identity+" "+prefix, since, list)
		l, _ = answer.(*listing)
		return err
	})
	return l, err
}

// takeAll lists the objects whose keys begin with prefix.
func takeAll(ctx context.Context, from Driver, prefix string, progress func(int)) (*listing, error) {
	l := new(listing)
	for object, err := range from.List(ctx, prefix) {
		if err == nil {
			err = l.add(object, prefix)
		}
		if err != nil {
			return nil, after(len(l.objects), err)
		}
		if len(l.objects)%progressEvery == 0 {
			progress(len(l.objects))
		}
	}
	return l, after(len(l.objects), context.Cause(ctx)) // a listing that was cut short is none
}

// add appends o. The error names a key that the store listed before, a value
// that cannot be, or the limit.
func (l *listing) add(o Object, prefix string) error {
	l.size += int64(len(o.Key) + len(o.ETag) + len(o.Version) + objectSize)
	switch {
	case !strings.HasPrefix(o.Key, prefix):
		return fmt.Errorf("the store lists the object %s, which does not begin with spec.prefix", quoted(o.Key))
	case o.Size < 0:
		return fmt.Errorf("object %s has %d bytes, says the store", quoted(o.Key), o.Size)
	case l.keys.repeats(o.Key):
		return fmt.Errorf("the store repeats its listing: object %s was listed before", quoted(o.Key))
	case l.size > maxListing:
		return fmt.Errorf("more than %d bytes of keys and ETags: narrow spec.prefix", maxListing)
	}
	l.objects = append(l.objects, o)
	return nil
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

// search looks for .sourceignore, which spec.prefix hides. Without the
// permission to list it there are no rules.
func (o *Origin) search(ctx context.Context, s *snapshot) (found *Object, err error) {
	err = o.within(ctx, "look for "+ignoreFile, func(ctx context.Context) error {
		seen := 0
		for object, err := range s.driver.List(ctx, ignoreFile) {
			if err != nil {
				return after(0, err)
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

// readRules returns what .sourceignore holds, which is read if it is not what was seen before.
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
		body := newObjectReader(ctx, s.driver, object)
		defer body.Close()
		text, err = readRules(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", ignoreFile, err)
	}
	return &rulesFile{object.ETag, text}, nil
}

// A cycle notices a sequence of keys, or of page tokens, that repeats itself
// without keeping it (Brent's algorithm): it remembers one key, a later one each time that the
// sequence has doubled.
type cycle struct {
	key         string
	since, next int // keys since that one, and until the next is remembered
}

// repeats reports whether key is the remembered one.
func (c *cycle) repeats(key string) bool {
	if c.next > 0 && key == c.key {
		return true
	}
	if c.since++; c.since > c.next {
		c.key, c.since, c.next = key, 0, max(1, 2*c.next)
	}
	return false
}

// ErrBroken marks a page whose body ended with an error.
var ErrBroken = errors.New("the answer breaks off")

var errNoListing = errors.New("the answer is no listing: check spec.endpoint")

// ReadPage returns the body of resp, a page of a listing of at most limit bytes, and closes it.
func ReadPage(resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, limit))
	if err != nil && !is[*http.MaxBytesError](err) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return text, err
}

// SetPage makes text the body of resp.
func SetPage(resp *http.Response, text []byte) {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
}

const maxPageToken = 8 << 10 // bytes

// tokensKey is the key of the context value that is the [cycle] of the page tokens of a listing.
type tokensKey struct{}

// Listing returns a context for the requests of one listing, which [NextPage] checks.
func Listing(ctx context.Context) context.Context {
	return context.WithValue(ctx, tokensKey{}, new(cycle))
}

// NextPage reports why the page that token names, "" for the first, is not to be asked for.
// A store that turns in circles is found out by its tokens, pages without objects included.
func NextPage(ctx context.Context, token string) error {
	tokens, ok := ctx.Value(tokensKey{}).(*cycle)
	switch {
	case len(token) > maxPageToken:
		return fmt.Errorf("the store's page token has more than %d bytes", maxPageToken)
	case ok && token != "" && tokens.repeats(token):
		return errors.New("the store repeats a page token: its listing would never end")
	}
	return nil
}

// An XMLPage says what a page of a listing looks like where a store writes XML.
type XMLPage struct {
	Root, Item string   // names of elements
	Items      int      // at most
	Each       []string // elements that are there as often as items
	Needs      string   // an element that is there
	Limit      int64    // bytes
}

// Check reads the page that resp has, and leaves it to be read again, by an SDK
// that takes any XML for a listing and spends kilobytes on each item.
func (f XMLPage) Check(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	if strings.Contains(kind, "html") && !strings.Contains(kind, "xml") || strings.Contains(kind, "json") {
		return errNoListing
	}
	text, err := ReadPage(resp, f.Limit)
	if err != nil {
		return err
	}
	SetPage(resp, text)
	return f.check(text)
}

// check counts the elements, whatever is in them, comments and text included:
// what that takes for one too many, no store writes.
func (f XMLPage) check(text []byte) error {
	count, root := map[string]int{}, ""
	_, text, _ = bytes.Cut(text, []byte("<"))
	for tag := range bytes.SplitSeq(text, []byte("<")) {
		if end := bytes.IndexAny(tag, " \t\r\n/>"); end > 0 && tag[0] != '?' && tag[0] != '!' {
			name := tag[bytes.LastIndexByte(tag[:end], ':')+1 : end]
			switch {
			case root == "" && string(name) != f.Root:
				return errNoListing
			case root == "":
				root = f.Root
			case string(name) == f.Item || string(name) == f.Needs || slices.Contains(f.Each, string(name)):
				count[string(name)]++
			}
		}
	}
	items := count[f.Item]
	switch {
	case root == "":
		return errNoListing
	case items > f.Items:
		return fmt.Errorf("the answer lists more than the %d objects that were asked for", f.Items)
	}
	for _, name := range f.Each {
		if count[name] != items {
			return fmt.Errorf("the answer lists an object without %s, or with several", name)
		}
	}
	if count[f.Needs] == 0 {
		return errNoListing
	}
	return nil
}
