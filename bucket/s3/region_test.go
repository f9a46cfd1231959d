package s3_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

// A store in another region says so once.
func TestRegion(t *testing.T) {
	config := signed()
	config.Region, config.PageSize = "eu-west-3", 1
	for region, want := range map[string]int{"": 3, "eu-west-3": 2, "us-west-2": 3} {
		s := filled(t, config, "a", "1", "b", "2")
		a := keyed(s)
		a.Spec.Region = region
		d := connect(t, a)
		all, err := list(t.Context(), d, "")
		if err != nil || len(all) != 2 || s.Count() != want {
			t.Errorf("region %q: %v, %v, %d requests", region, all, err, s.Count())
		}
		if _, err := read(t.Context(), d, all[0], 0); err != nil || s.Count() != want+1 {
			t.Errorf("region %q: %v, %d requests", region, err, s.Count())
		}
	}
}

func TestRegionsThatLeadNowhere(t *testing.T) {
	moved := func(status int, region, code string) testenv.Defect {
		return testenv.Defect{Status: status, Header: http.Header{"X-Amz-Bucket-Region": {region}}, Body: "<Error><Code>" + code + "</Code></Error>"}
	}
	for name, c := range map[string]struct {
		defect   testenv.Defect
		requests int
		say      string
	}{
		"around":     {moved(301, "eu-west-1", "PermanentRedirect"), 2, "400 Bad Request: AuthorizationHeaderMalformed"},
		"no region":  {moved(301, "../../canary", "PermanentRedirect"), 1, "301 Moved Permanently: PermanentRedirect"},
		"here":       {moved(400, "us-east-1", "AuthorizationHeaderMalformed"), 1, "set spec.region to that of the bucket"},
		"not found":  {moved(404, "us-east-1", "NoSuchBucket"), 1, "check spec.bucketName"},
		"other code": {moved(405, "us-east-1", "MethodNotAllowed"), 1, "that is no store of S3, or its console"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, signed(), "a", "1")
			s.Break(&c.defect)
			_, err := list(t.Context(), connect(t, keyed(s)), "")
			wantError(t, s, err, c.say)
			if s.Count() != c.requests {
				t.Errorf("%d requests", s.Count())
			}
		})
	}
}

// A store that sends from region to region is followed for a while.
func TestRegionsInCircles(t *testing.T) {
	s := filled(t, testenv.S3Config{}, "a", "1")
	n := 0
	s.Break(&testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		n++
		w.Header().Set("X-Amz-Bucket-Region", fmt.Sprintf("eu-west-%d", n))
		w.WriteHeader(http.StatusMovedPermanently)
	}})
	d := connect(t, access(s))
	for range 10 {
		_, err := list(t.Context(), d, "")
		wantError(t, s, err, "301 Moved Permanently|set spec.endpoint and spec.region")
	}
	if s.Count() != 13 {
		t.Errorf("%d requests", s.Count())
	}
}

// aws returns a server that stands for hosts of AWS, and the access to it.
func aws(t *testing.T, region, endpoint string, hosts ...string) (*testenv.S3, *testenv.ProxyServer, *bucket.Access) {
	ca := testenv.NewCA(t)
	config := signed()
	config.CA, config.Mutual, config.Region, config.Names = ca, true, region, hosts
	s := filled(t, config, "dir/a", "1")
	to := map[string]string{}
	for _, host := range hosts {
		to[host+":443"], to["bucket."+host+":443"] = s.Host, s.Host
	}
	proxy := testenv.ServeProxy(t, testenv.Proxy{Hosts: to})
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := keyed(s)
	a.Spec.Endpoint = endpoint
	a.Way = transport.Config{TLS: tlsOf(t, ca, ca), Proxy: http.ProxyURL(u)}
	return s, proxy, a
}

// At AWS the bucket is in the host, and so is the region: both move on when the store says so.
func TestHosts(t *testing.T) {
	const east, west = "s3.us-east-1.amazonaws.com", "s3.eu-west-3.amazonaws.com"
	for name, c := range map[string]struct {
		endpoint, region, bucket string
		hosts                    []string // in the order they are asked
	}{
		"right":     {west, "", "bucket", []string{"bucket." + west}},
		"wrong":     {east, "", "bucket", []string{"bucket." + east, "bucket." + west}},
		"global":    {"s3.amazonaws.com:443", "eu-west-3", "bucket", []string{"bucket." + west}},
		"dots":      {west, "", "buc.ket", []string{west}},
		"uppercase": {west, "", "Bucket", []string{west}},
	} {
		t.Run(name, func(t *testing.T) {
			s, proxy, a := aws(t, "eu-west-3", c.endpoint, east, west)
			s.Bucket(c.bucket).Put("dir/a", "1")
			a.Spec.Region, a.Spec.BucketName = c.region, c.bucket
			d := connect(t, a)
			all, err := list(t.Context(), d, "")
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			if text, err := read(t.Context(), d, all[0], 0); text != "1" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			var want []string
			for _, host := range c.hosts {
				want = append(want, "CONNECT "+host+":443")
			}
			if got := strings.Join(proxy.Seen(), " "); got != strings.Join(want, " ") {
				t.Errorf("%s, want %s", got, want)
			}
			for _, q := range s.Requests() {
				if q.Certificate != "reader" {
					t.Errorf("%s without the client's certificate", q.Path)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	ca := testenv.NewCA(t)
	config := signed()
	config.CA, config.Mutual = ca, true
	s := filled(t, config, "a", "1")
	plain := filled(t, signed(), "a", "1")
	for name, c := range map[string]struct {
		server   *testenv.S3
		tls      *tls.Config
		insecure bool
		say      string
	}{
		"mutual":         {s, tlsOf(t, ca, ca), false, ""},
		"no certificate": {s, tlsOf(t, ca, nil), false, "list objects at 127.0.0.1:|certificate"},
		"no CA":          {s, nil, false, "list objects at 127.0.0.1:|certificate"},
		"in the clear":   {s, nil, true, "400 Bad Request|the server speaks TLS: remove spec.insecure"},
		"no TLS":         {plain, nil, false, "the server speaks no TLS: set spec.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			a := keyed(c.server)
			a.Way.TLS, a.Spec.Insecure = c.tls, c.insecure
			all, err := list(t.Context(), connect(t, a), "")
			if c.say == "" && (len(all) != 1 || err != nil) {
				t.Error(all, err)
			}
			if c.say != "" {
				wantError(t, c.server, err, c.say)
			}
		})
	}
}

// A server that knows nothing but TLS answers with an alert.
func TestAlert(t *testing.T) {
	a := keyed(filled(t, signed()))
	a.Spec.Endpoint = testenv.Listen(t, func(c net.Conn) {
		c.Read(make([]byte, 1))
		io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x16")
	})
	_, err := list(t.Context(), connect(t, a), "")
	wantError(t, nil, err, "list objects at 127.0.0.1:|the server speaks TLS: remove spec.insecure")
}

// A clock that is wrong is named.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		date string
		code string
		say  string
	}{
		"behind":       {time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat), "RequestTimeTooSkewed", "the clock of this machine says |h|that of the server"},
		"ahead":        {time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), "RequestTimeTooSkewed", "that of the server"},
		"other reason": {time.Now().Add(-24 * time.Hour).UTC().Format(http.TimeFormat), "AccessDenied", "that of the server"},
		"right":        {time.Now().UTC().Format(http.TimeFormat), "RequestTimeTooSkewed", "check the clocks of this machine and of the store"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, signed(), "a", "1")
			d := testenv.S3Failure(http.StatusForbidden, c.code, "The difference between the request time and the current time is too large.")
			d.Header.Set("Date", c.date)
			s.Break(d)
			_, err := list(t.Context(), connect(t, keyed(s)), "")
			wantError(t, s, err, "403 Forbidden: "+c.code+"|"+c.say)
		})
	}
	s := filled(t, signed(), "a", "1")
	s.Shift(16 * time.Minute)
	_, err := list(t.Context(), connect(t, keyed(s)), "")
	wantError(t, s, err, "RequestTimeTooSkewed|clock")
}
