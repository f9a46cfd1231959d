package lfs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

// seen returns what servers were shown, as PHASE AUTHORIZATION X-KEY, sorted and once each.
func seen(s *testenv.Server) []string {
	all := map[string]bool{}
	for _, q := range s.Requests() {
		all[strings.TrimSpace(fmt.Sprint(q.Phase, " ", q.Authorization, " ", q.Header.Get("X-Key")))] = true
		for _, h := range []string{"Referer", "Cookie", "Range"} {
			if v := q.Header.Get(h); v != "" {
				all[h+" "+v] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The credentials of the repository are for its origin, those of a link for the
// origin of the link.
func TestCredentials(t *testing.T) {
	const own = "Bearer " + canary
	link := map[string]string{"Authorization": "RemoteAuth link", "X-Key": "k", "Cookie": "c", "Range": "bytes=1-", "Host": "evil.example"}
	for name, row := range map[string]struct {
		edit       func(a *testenv.LFSAction, here, there string)
		trusted    bool // the links say that they need no credentials
		here       func(there string) *testenv.Defect
		there      func(here string) *testenv.Defect
		seen, also []string // here and there
	}{
		"own link": {seen: []string{"lfs batch " + own, "lfs object " + own}},
		"own link with a header": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"},
		},
		"own link that brings credentials": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = link },
			seen: []string{"lfs batch " + own, "lfs object RemoteAuth link k"},
		},
		"own link that needs none": {trusted: true, seen: []string{"lfs batch " + own, "lfs object"}},
		"link elsewhere": {
			edit: func(a *testenv.LFSAction, here, there string) { a.Href = strings.Replace(a.Href, here, there, 1) },
			seen: []string{"lfs batch " + own}, also: []string{"lfs object"},
		},
		"link elsewhere that brings credentials": {
			edit: func(a *testenv.LFSAction, here, there string) {
				a.Href, a.Header = strings.Replace(a.Href, here, there, 1), link
			},
			seen: []string{"lfs batch " + own}, also: []string{"lfs object RemoteAuth link k"},
		},
		"link with user information": {
			edit: func(a *testenv.LFSAction, here, there string) {
				a.Href = strings.Replace(a.Href, here, strings.Replace(there, "://", "://u:p@", 1), 1)
			},
			seen: []string{"lfs batch " + own}, also: []string{"lfs object"},
		},
		"batch redirected": {
			here: testenv.Redirect, // a POST that stays one
			seen: []string{"lfs batch " + own}, also: []string{"lfs batch", "lfs object"},
		},
		"batch redirected, links lead back": {
			here: func(there string) *testenv.Defect { d := testenv.Redirect(there); d.Phase = testenv.LFSBatch; return d },
			edit: func(a *testenv.LFSAction, here, there string) { a.Href = strings.Replace(a.Href, there, here, 1) },
			seen: []string{"lfs batch " + own, "lfs object"}, also: []string{"lfs batch"},
		},
		"download redirected": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(there string) *testenv.Defect {
				d := testenv.Redirect(there)
				d.Phase = testenv.LFSObject
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"}, also: []string{"lfs object"},
		},
		"download with credentials redirected": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = link },
			here: func(there string) *testenv.Defect {
				d := testenv.Redirect(there)
				d.Phase = testenv.LFSObject
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object RemoteAuth link k"}, also: []string{"lfs object"},
		},
		"download redirected here": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(string) *testenv.Defect {
				d := testenv.Redirect("")
				d.Phase, d.Times, d.Header = testenv.LFSObject, 2, http.Header{"Location": {"?"}}
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"},
		},
		"download redirected there and back": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(there string) *testenv.Defect {
				d := testenv.Redirect(there)
				d.Phase, d.Times = testenv.LFSObject, 2
				return d
			},
			there: testenv.Redirect,
			seen:  []string{"lfs batch " + own, "lfs object", "lfs object " + own + " k"}, also: []string{"lfs object"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := new(testenv.LFS)
			all := func(*http.Request) bool { return true }
			here := testenv.ServeAll(t, testenv.HTTP{LFS: objects, Allow: all}, nil)
			there := testenv.ServeAll(t, testenv.HTTP{LFS: objects, Allow: all}, nil)
			objects.Edit = func(o *testenv.LFSAnswer) {
				o.Authenticated = row.trusted
				if row.edit != nil {
					edit(func(a *testenv.LFSAction) { row.edit(a, here.URL, there.URL) })(o)
				}
			}
			s := newStage(t, objects)
			s.objects.Edit, s.server = objects.Edit, here
			s.at(t, here.Repo())
			if row.here != nil {
				here.Break(row.here(there.URL))
			}
			if row.there != nil {
				there.Break(row.there(here.URL))
			}
			s.good(s.fill(t.Context()))
			if got := seen(here); !slices.Equal(got, row.seen) {
				t.Errorf("the repository's origin saw %q, want %q", got, row.seen)
			}
			if got := seen(there); !slices.Equal(got, row.also) {
				t.Errorf("the other origin saw %q, want %q", got, row.also)
			}
		})
	}
}

// at makes s a client of the repository at another URL.
func (s *lfsServer) at(t *testing.T, url string) {
	repo := parse(t, url)
	config := transport.Config{Origin: repo, Auth: transport.Auth{Bearer: canary}}
	s.client.HTTP, s.client.Bare = transport.Client(config), transport.Client(transport.Config{Origin: repo})
	s.client.Endpoint = func(context.Context) (lfs.Endpoint, error) { return lfs.Discover(repo, "") }
}

// A server leads to http and https only, never from https to http, and from
// elsewhere not into this machine or its link.
func TestRefusedAddresses(t *testing.T) {
	objects := new(testenv.LFS)
	ca := testenv.NewCA(t)
	plain := testenv.ServeAll(t, testenv.HTTP{LFS: objects}, nil)
	secure := testenv.ServeAll(t, testenv.HTTP{LFS: objects, CA: ca}, nil)
	testenv.Resolve(t, "git.example", "203.0.113.7")
	at := "http://git.example" + plain.URL[strings.LastIndex(plain.URL, ":"):] + "/repo.git"
	everywhere := func(repo string) *http.Client {
		u := parse(t, repo)
		return transport.Client(transport.Config{Origin: u, TLS: &tls.Config{RootCAs: ca.Pool()}})
	}
	for name, row := range map[string]struct {
		repo, href, location string
		server               *testenv.Server
		say                  string
	}{
		"link gives up TLS":          {secure.Repo(), plain.URL + "/x", "", secure, "gives up TLS"},
		"redirect gives up TLS":      {secure.Repo(), "", plain.URL, secure, "redirect: address refused"},
		"link to loopback":           {at, "http://127.0.0.1/x", "", plain, "this machine or link"},
		"link to metadata service":   {at, "http://169.254.169.254/latest", "", plain, "metadata service"},
		"redirect to another scheme": {at, "", "ftp://git.example", plain, "no HTTP address"},
	} {
		t.Run(name, func(t *testing.T) {
			objects.Edit = nil
			if row.href != "" {
				objects.Edit = hrefTo(row.href)
			}
			s := newStage(t, objects)
			s.at(t, row.repo)
			s.client.HTTP, s.client.Bare = everywhere(row.repo), everywhere(row.repo)
			row.server.Break(nil)
			if row.location != "" {
				row.server.Break(testenv.Redirect(row.location))
			}
			_, err := s.fill(t.Context())
			if narrower := errors.As(err, new(*transport.ZoneError)); narrower == errors.Is(err, lfs.ErrRefused) || !strings.Contains(err.Error(), row.say) {
				t.Errorf("%v, want %s", err, row.say)
			}
		})
	}
}

func TestRedirectsWithoutEnd(t *testing.T) {
	s := newStage(t, new(testenv.LFS))
	s.server.Break(testenv.Redirect("")) // to where it is
	if _, err := s.fill(t.Context()); !errors.Is(err, lfs.ErrProtocol) {
		t.Errorf("%v", err)
	}
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }))
	defer loop.Close()
	s.server.Break(testenv.Redirect(loop.URL))
	if _, err := s.fill(t.Context()); !errors.Is(err, lfs.ErrRefused) || !strings.Contains(err.Error(), "more than 5 redirects") {
		t.Errorf("%v", err)
	}
}
