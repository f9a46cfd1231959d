package main

import (
	"bufio"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	manyKeys = 1_000_000
	pageKeys = 1000
	manyName = "many" // the bucket of manyKeys keys
)

// serveKeys serves a bucket of which only the listing exists (ListObjectsV2 of
// the S3 API). It generates each page on request, and writes its address to out.
func serveKeys(out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(answerKeys))
}

func answerKeys(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/xml")
	switch {
	case r.Method == http.MethodGet && query.Has("list-type"):
		from, _ := strconv.Atoi(query.Get("continuation-token"))
		w.Write(page(from, query.Get("fetch-owner") == "true"))
	case r.Method == http.MethodGet && query.Has("location"):
		io.WriteString(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`+region+`</LocationConstraint>`)
	case r.Method == http.MethodHead && key == "":
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "<Error><Code>NoSuchKey</Code><Message>there are no objects</Message><Key>%s</Key></Error>", key)
	}
}

// page returns the page of a listing that starts at key number from.
func page(from int, owner bool) []byte {
	from = min(max(from, 0), manyKeys)
	to := min(from+pageKeys, manyKeys)
	out := make([]byte, 0, 512+300*(to-from))
	out = fmt.Appendf(out, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>%s</Name><Prefix></Prefix>`, manyName)
	if to < manyKeys {
		out = fmt.Appendf(out, "<NextContinuationToken>%d</NextContinuationToken>", to)
	}
	out = fmt.Appendf(out, "<KeyCount>%d</KeyCount><MaxKeys>%d</MaxKeys><Delimiter></Delimiter><IsTruncated>%t</IsTruncated>", to-from, pageKeys, to < manyKeys)
	for n := from; n < to; n++ {
		sum := md5.Sum(strconv.AppendInt(nil, int64(n), 10))
		out = fmt.Appendf(out, "<Contents><Key>tenants/%03d/objects/part-%010d.json</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&#34;", n/pageKeys, n)
		out = append(hex.AppendEncode(out, sum[:]), "&#34;</ETag><Size>4096</Size>"...)
		if owner {
			out = append(out, "<Owner><ID>02d6176db174dc93cb1b899f7c6078f08654445fe8cf1b6ce98d8855f66bdbf4</ID><DisplayName>minio</DisplayName></Owner>"...)
		}
		out = append(out, "<StorageClass>STANDARD</StorageClass></Contents>"...)
	}
	return append(out, "<EncodingType>url</EncodingType></ListBucketResult>"...)
}

// A keyServer is serveKeys in another process.
type keyServer struct {
	host string
	cmd  *exec.Cmd
}

func startKeys(ctx context.Context, self string) (*keyServer, error) {
	s := &keyServer{cmd: childCommand(ctx, self, os.Stderr, "-serve")}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("the server of keys: %w", err)
	}
	s.host = strings.TrimSpace(line)
	return s, nil
}

// Close kills the server.
func (s *keyServer) Close() error {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	return nil
}

// list lists the bucket of many keys with minio-go and discards the result.
func list(ctx context.Context, host string) error {
	c, err := client(host, credentials.NewStaticV4("", "", ""))
	if err != nil {
		return err
	}
	n := 0
	for o := range c.ListObjects(ctx, manyName, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		n++
	}
	if n != manyKeys {
		return fmt.Errorf("the listing had %d keys", n)
	}
	return nil
}
