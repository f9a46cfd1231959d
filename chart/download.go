package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	maxURLs    = 20      // of an entry that are tried
	maxAddress = 8 << 10 // bytes of one
)

// fetched is a chart and where it is from.
type fetched struct {
	*bundle.Archive
	from *url.URL // nil for one from the cache
	prov []byte   // provenance file that came with it, nil for none
}

// obtain returns the chart of o, from the cache if that will do, or else from
// the first URL of its entry that gives what the index promises.
func (u *site) obtain(ctx context.Context, o offer, l *listed, cached bool) (*fetched, error) {
	if cached {
		end := u.queue(ctx, l)
		defer end()
		if a := u.recall(o, l); a != nil {
			return &fetched{Archive: a}, nil
		}
	}
	urls := l.entry.URLs[:min(len(l.entry.URLs), maxURLs)]
	err := fmt.Errorf("index of %s, line %d: it has no URL", u.name(), l.entry.Line)
	for i, text := range urls {
		got, failed := u.try(ctx, o, l, text)
		if failed == nil {
			u.remember(l, got)
			return got, nil
		}
		if i == 0 {
			err = failed
		} else {
			err = fmt.Errorf("%w; %w", err, failed)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, stepError(source.StepFetch, pullFailed, fmt.Errorf("chart %s %s: %w", o.name, o.version, err))
}

// try returns the chart from one URL. Errors name it.
func (u *site) try(ctx context.Context, o offer, l *listed, text string) (*fetched, error) {
	at, err := u.resolve(text)
	if err != nil {
		return nil, err
	}
	if at.Scheme == "oci" {
		return u.pull(ctx, o, l, at)
	}
	return u.download(ctx, o, l, at)
}

// resolve returns the URL that an entry has. A relative one is below the
// repository and keeps its query, which may be what lets us in, for its server.
func (u *site) resolve(text string) (*url.URL, error) {
	if len(text) > maxAddress {
		return nil, fmt.Errorf("URL %.100q… has more than %d bytes", text, maxAddress)
	}
	to, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("URL %.100q cannot be read", redact.String(text))
	}
	relative := !to.IsAbs()
	at := u.web.at.ResolveReference(to)
	if relative {
		at.RawQuery = to.RawQuery
		if transport.SameOrigin(at, u.web.at) && u.web.at.RawQuery != "" {
			at.RawQuery = strings.Trim(to.RawQuery+"&"+u.web.at.RawQuery, "&")
		}
	}
	at.Fragment, at.RawFragment = "", ""
	switch {
	case at.Scheme != "http" && at.Scheme != "https" && at.Scheme != "oci":
		return nil, fmt.Errorf("URL %.100q: scheme %.20q: want http, https or oci", redact.String(text), at.Scheme)
	case at.Hostname() == "":
		return nil, fmt.Errorf("URL %.100q has no host", redact.String(text))
	}
	if password, ok := at.User.Password(); ok {
		u.supply.vault.Conceal(password)
	}
	return at, nil
}

// download returns the chart at a URL: its digest is that of the index, name and
// version are those of o.
func (u *site) download(ctx context.Context, o offer, l *listed, at *url.URL) (*fetched, error) {
	if l.digest == "" && at.Scheme == "http" && u.web.at.Scheme == "https" {
		return nil, errors.New("it gives up TLS, and the index tells no digest that it could be compared with")
	}
	var got *fetched
	limits := u.limits()
	err := u.open(ctx, at, "download chart", func(size int64, content io.Reader) error {
		sum := sha256.New()
		content = io.TeeReader(content, sum)
		a, err := readArchive(content, size, limits)
		if errors.Is(err, bundle.ErrChart) {
			err = l.blame(err, content, sum)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", redact.URL(at), err)
		}
		if l.digest != "" && a.Digest != l.digest {
			a.Close()
			return fmt.Errorf("%s: it is not what the index promises: %w", redact.URL(at), &artifact.DigestError{Want: l.digest, Got: a.Digest})
		}
		if err := checkOwn(o, a); err != nil {
			a.Close()
			return fmt.Errorf("%s: %w", redact.URL(at), err)
		}
		got = &fetched{Archive: a, from: at}
		return nil
	})
	return got, err
}

// blame returns the error about what is no chart: that it is not what the index
// promises, if its digest differs once rest, unless that is very long, is in sum.
func (l *listed) blame(err error, rest io.Reader, sum hash.Hash) error {
	var limit *artifact.LimitError
	if l.digest == "" || errors.As(err, &limit) {
		return err
	}
	most := bundle.Limits(artifact.Limits{}).Bytes
	if n, broken := io.Copy(io.Discard, io.LimitReader(rest, most)); broken != nil || n == most {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != l.digest {
		return fmt.Errorf("it is not what the index promises: %w: %w", &artifact.DigestError{Want: l.digest, Got: got}, err)
	}
	return err
}

// readArchive reads a chart of size bytes, unless that is negative.
func readArchive(content io.Reader, size int64, l artifact.Limits) (*bundle.Archive, error) {
	if l.Bytes > 0 && size > l.Bytes {
		return nil, &artifact.LimitError{What: "bytes", Limit: l.Bytes}
	}
	return bundle.ReadArchive(content, l)
}

func (u *site) limits() artifact.Limits { return bundle.Limits(u.supply.env.Limits) }

// identity asks for bytes as they are: the digest is that of these.
var identity = http.Header{"Accept-Encoding": {"identity"}}

// open gives use what is at a URL, of size bytes unless that is negative.
func (u *site) open(ctx context.Context, at *url.URL, step string, use func(size int64, content io.Reader) error) error {
	if path, ok := u.below(at); ok {
		return openFile(u.local, path, use)
	}
	return source.Within(ctx, timeout(u.repo), step, func(ctx context.Context) error {
		resp, err := u.web.get(ctx, at, identity)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return use(resp.ContentLength, resp.Body)
	})
}

// below returns the path of what is at a URL in the directory that stands in
// for the repository.
func (u *site) below(at *url.URL) (path string, ok bool) {
	if u.local == "" || !transport.SameOrigin(at, u.web.at) {
		return "", false
	}
	return strings.CutPrefix(at.Path, u.web.at.Path)
}

// openFile gives use a regular file in dir, or below it.
func openFile(dir, path string, use func(size int64, content io.Reader) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("local directory: %w", err)
	}
	defer root.Close()
	name := filepath.FromSlash(path)
	info, err := root.Stat(name)
	if err != nil {
		return fmt.Errorf("local directory %s: %w", dir, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("local directory %s: %q is no file", dir, path)
	}
	file, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("local directory %s: %w", dir, err)
	}
	defer file.Close()
	return use(info.Size(), file)
}

// cacheKey names the archive of l in the cache, and who may see it: what is
// refused without a cache must not come out of one.
func (u *site) cacheKey(l *listed) string { return "chart/" + l.digest + " " + string(u.web.print[:]) }

// recall returns the chart of o if the cache has it, nil if not.
func (u *site) recall(o offer, l *listed) *bundle.Archive {
	cache := u.supply.env.Cache
	if cache == nil || l.digest == "" || u.local != "" {
		return nil
	}
	return cached(cache, u.cacheKey(l), l.digest, o, u.limits())
}

// queue has those who are about to download the same chart do that one after the
// other: all but the first find it in the cache.
func (u *site) queue(ctx context.Context, l *listed) (end func()) {
	cache := u.supply.env.Cache
	if cache == nil || l.digest == "" || u.local != "" {
		return func() {}
	}
	end, err := cache.Lock(ctx, u.cacheKey(l))
	if err != nil { // who cannot wait for it downloads it
		return func() {}
	}
	return end
}

// remember puts a chart into the cache.
func (u *site) remember(l *listed, got *fetched) {
	if cache := u.supply.env.Cache; cache != nil && l.digest == got.Digest && u.local == "" {
		remember(cache, u.cacheKey(l), got.Archive)
	}
}

// cached returns the chart of o that is under key, nil if it is not there, not
// readable, or not what it should be.
func cached(cache *artifact.Cache, key, digest string, o offer, l artifact.Limits) *bundle.Archive {
	entry, err := cache.Open(key)
	if err != nil {
		return nil
	}
	defer entry.Close()
	a, err := bundle.ReadArchive(entry, l)
	if err != nil {
		return nil
	}
	if a.Digest != digest || checkOwn(o, a) != nil {
		a.Close()
		return nil
	}
	return a
}

// remember puts a chart under key. A cache that is broken or too small keeps
// nobody from a chart that has arrived.
func remember(cache *artifact.Cache, key string, a *bundle.Archive) {
	cache.Put(key, func(w io.Writer) error {
		_, err := a.WriteTo(w)
		return err
	})
}
