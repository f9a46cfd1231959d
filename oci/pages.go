package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

// Bounds of what a registry lists.
const (
	pageSize = 1000     // entries we ask for; registries may send fewer
	maxPages = 2000     // of one list
	maxList  = 64 << 20 // bytes of its pages together
	maxLink  = 8 << 10  // bytes of the URL of a page
)

func (s *server) tags(ctx context.Context) iter.Seq2[string, error] {
	first := s.at("tags/list", url.Values{"n": {strconv.Itoa(pageSize)}})
	return entries(s.pages(ctx, first, "application/json"), func(page []byte) ([]string, error) {
		var list struct {
			Tags []string `json:"tags"`
		}
		err := json.Unmarshal(page, &list)
		return list.Tags, err
	})
}

// unlisted are the answers of registries that have no list of referrers.
var unlisted = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (s *server) referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	query := url.Values{}
	if artifactType != "" {
		query.Set("artifactType", artifactType)
	}
	first := s.at("referrers/"+subject.Digest.String(), query)
	list := entries(s.pages(ctx, first, ocispec.MediaTypeImageIndex), func(page []byte) ([]ocispec.Descriptor, error) {
		var index struct {
			Manifests descriptors `json:"manifests"`
		}
		err := json.Unmarshal(page, &index)
		return index.Manifests, err
	})
	return func(yield func(ocispec.Descriptor, error) bool) {
		for d, err := range list {
			if e, ok := errors.AsType[*StatusError](err); ok && slices.Contains(unlisted, e.Status) {
				err = errNoReferrers
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// entries lists the entries of pages, which decode finds in each.
func entries[T any](pages iter.Seq2[[]byte, error], decode func(page []byte) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range pages {
			var list []T
			if err == nil {
				if list, err = decode(page); err != nil {
					err = fmt.Errorf("it is no list: %w", err)
				}
			}
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, entry := range list {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// pages follows the links from page to page (RFC 8288).
func (s *server) pages(ctx context.Context, next *url.URL, accept string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		seen, total := map[string]bool{}, 0
		for next != nil {
			at := next.String()
			page, err := []byte(nil), error(nil)
			switch {
			case seen[at]:
				err = fmt.Errorf("page %d is one that was there before: the list has no end", len(seen)+1)
			case len(seen) == maxPages:
				err = fmt.Errorf("the list has more than %d pages", maxPages)
			default:
				page, next, err = s.page(ctx, next, accept)
			}
			seen[at] = true
			if total += len(page); err == nil && total > maxList {
				err = fmt.Errorf("the list has more than %d bytes", maxList)
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
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
