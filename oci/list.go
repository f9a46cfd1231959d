package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

// Bounds of lists.
const (
	maxTags      = 100_000
	maxReferrers = 10_000
	pageSize     = 1000     // entries we ask for; registries may send fewer
	maxPages     = 2000     // of one list
	maxList      = 64 << 20 // bytes of its pages together
	maxLink      = 8 << 10  // bytes of the URL of a page
)

// Tags lists the tags, in the order of the registry. Names that no tag can have
// (specification: letters, digits, . _ -, at most 128) are left out.
//
// A list of more than 100,000 names, 64 MiB or 2000 pages of at most 4 MiB is
// an error, and so are a page that was there already and one of another origin
// than the page before.
func (r *Repository) Tags(ctx context.Context) iter.Seq2[string, error] {
	return entries(maxTags, func(each func(string) error) error {
		if err := r.from.tags(ctx, each); err != nil {
			return fmt.Errorf("list tags of %s: %w", r.Name(), err)
		}
		return nil
	}, func(name string) (bool, error) { return isTag(name), nil })
}

// Referrers lists the manifests that refer to subject, those of artifactType
// alone unless it is "": by the referrers API, and where the registry has none
// by the tag that stands in for it (distribution specification 1.1, "Listing
// Referrers"), each once. There are none when nothing is found.
//
// More than 10,000 of them are an error, and so is a descriptor without a
// digest or with a size outside 0 to 4 MiB; pages are bounded as those of tags.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	listed := map[digest.Digest]bool{}
	return entries(maxReferrers, func(each func(ocispec.Descriptor) error) error {
		_, err := hasher(subject.Digest)
		if err == nil {
			clear(listed)
			err = r.from.referrers(ctx, subject, artifactType, each)
		}
		if errors.Is(err, errNoReferrers) {
			err = r.tagged(ctx, subject, each)
		}
		if err != nil {
			return r.fail("list referrers of", subject.Digest.String(), err)
		}
		return nil
	}, func(d ocispec.Descriptor) (bool, error) {
		if _, err := hasher(d.Digest); err != nil {
			return false, err
		}
		if d.Size < 0 || d.Size > maxManifest {
			return false, fmt.Errorf("%s has %d bytes: a manifest has at most %d", d.Digest, d.Size, maxManifest)
		}
		first := !listed[d.Digest]
		listed[d.Digest] = true
		return first && (artifactType == "" || d.ArtifactType == artifactType), nil
	})
}

// errStop ends a list of which the caller wants no more.
var errStop = errors.New("the caller wants no more entries")

// entries returns the entries that list gives to each and wanted accepts. A list
// of more than most entries is an error.
func entries[T any](most int, list func(each func(T) error) error, wanted func(T) (bool, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		seen := 0
		err := list(func(entry T) error {
			if seen++; seen > most {
				return fmt.Errorf("there are more than %d", most)
			}
			ok, err := wanted(entry)
			if ok && !yield(entry, nil) {
				return errStop
			}
			return err
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(*new(T), err)
		}
	}
}

// forEach calls each for the entries of a list until it fails.
func forEach[T any](list []T, each func(T) error) error {
	for _, entry := range list {
		if err := each(entry); err != nil {
			return err
		}
	}
	return nil
}

// errNoReferrers says that a holder keeps no list of referrers.
var errNoReferrers = errors.New("no list of referrers is kept")

// tagged lists the entries of the index whose tag is made of the subject's
// digest (distribution specification 1.1, "Referrers Tag Schema").
func (r *Repository) tagged(ctx context.Context, subject ocispec.Descriptor, each func(ocispec.Descriptor) error) error {
	tag := fmt.Sprintf("%.32s-%.64s", subject.Digest.Algorithm(), subject.Digest.Encoded())
	d, content, err := readManifest(ctx, r.from, tag, ocispec.Descriptor{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var index struct{ Manifests descriptors }
	if err == nil && d.MediaType == ocispec.MediaTypeImageIndex && d.Digest != subject.Digest {
		err = json.Unmarshal(content, &index)
	}
	if err != nil {
		return fmt.Errorf("tag %s: %w", tag, err)
	}
	return forEach(index.Manifests, each)
}

func (s *server) tags(ctx context.Context, each func(string) error) error {
	first := s.at("tags/list", url.Values{"n": {strconv.Itoa(pageSize)}})
	return s.pages(ctx, first, "application/json", func(page []byte) error {
		var list struct{ Tags []string }
		if err := json.Unmarshal(page, &list); err != nil {
			return fmt.Errorf("it is no list: %w", err)
		}
		return forEach(list.Tags, each)
	})
}

// unlisted are the answers of registries that have no list of referrers.
var unlisted = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (s *server) referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, each func(ocispec.Descriptor) error) error {
	query := url.Values{}
	if artifactType != "" {
		query.Set("artifactType", artifactType)
	}
	first := s.at("referrers/"+subject.Digest.String(), query)
	err := s.pages(ctx, first, ocispec.MediaTypeImageIndex, func(page []byte) error {
		var index struct{ Manifests descriptors }
		if err := json.Unmarshal(page, &index); err != nil {
			return fmt.Errorf("it is no list: %w", err)
		}
		return forEach(index.Manifests, each)
	})
	if e, ok := errors.AsType[*StatusError](err); ok && slices.Contains(unlisted, e.Status) {
		return errNoReferrers
	}
	return err
}

// pages gives use one page after another, following the links (RFC 8288).
func (s *server) pages(ctx context.Context, next *url.URL, accept string, use func(page []byte) error) error {
	seen, total := map[string]bool{}, 0
	for next != nil {
		at := next.String()
		switch {
		case seen[at]:
			return fmt.Errorf("page %d is one that was there before: the list has no end", len(seen)+1)
		case len(seen) == maxPages:
			return fmt.Errorf("the list has more than %d pages", maxPages)
		}
		seen[at] = true
		page, after, err := s.page(ctx, next, accept)
		if err != nil {
			return err
		}
		if total += len(page); total > maxList {
			return fmt.Errorf("the list has more than %d bytes", maxList)
		}
		if err := use(page); err != nil {
			return err
		}
		next = after
	}
	return nil
}

// page returns one page and the URL of the next one, nil when it is the last.
func (s *server) page(ctx context.Context, u *url.URL, accept string) (page []byte, next *url.URL, err error) {
	resp, err := s.ask(ctx, http.MethodGet, u, accept)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if accept == ocispec.MediaTypeImageIndex && mediaType(resp) != accept {
		return nil, nil, errNoReferrers // some other page, with status 200
	}
	if page, err = readAll(resp.Body, maxManifest); err != nil {
		return nil, nil, fmt.Errorf("page %s: %w", u.Path, err)
	}
	next, err = nextPage(resp.Request.URL, resp.Header) // of a page that may be elsewhere
	return page, next, err
}

// nextPage returns where the header Link says that the list goes on.
func nextPage(at *url.URL, header http.Header) (*url.URL, error) {
	target := nextLink(header)
	if target == "" {
		return nil, nil
	}
	if len(target) > maxLink {
		return nil, fmt.Errorf("header Link: its URL has %d bytes, at most %d are allowed", len(target), maxLink)
	}
	next, err := at.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("header Link: %.100q is no URL", target)
	}
	if next.User != nil || !transport.SameOrigin(at, next) {
		return nil, fmt.Errorf("header Link: the list goes on at %s, which is not the registry it began at", redact.URL(next))
	}
	next.Fragment = ""
	return next, nil
}

// nextLink returns the target of the link with the relation next, "" when
// there is none. A link without any relation counts: old registries send it.
func nextLink(header http.Header) string {
	for _, line := range header.Values("Link") {
		for line != "" {
			_, rest, found := strings.Cut(line, "<")
			if !found {
				break
			}
			target, rest, _ := strings.Cut(rest, ">")
			params, rest, _ := strings.Cut(rest, ",")
			line = rest
			rel, given := relation(params)
			if target != "" && (!given || rel == "next") {
				return target
			}
		}
	}
	return ""
}

func relation(params string) (rel string, given bool) {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "rel") {
			return strings.ToLower(strings.Trim(strings.TrimSpace(value), `"`)), true
		}
	}
	return "", false
}
