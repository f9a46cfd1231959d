// Origin serves the Git repositories and files below a directory, for the examples. It answers as a
// proxy as well: with http_proxy set to its URL, http://git.example.org/shop.git leads to DIR/shop.git.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: origin DIR")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	dir := os.Args[1]
	http.HandleFunc("GET /{repository}/info/refs", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		uploadPack(w, r, dir, "--advertise-refs")
	})
	http.HandleFunc("POST /{repository}/git-upload-pack", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		uploadPack(w, r, dir)
	})
	http.Handle("GET /", http.FileServer(http.Dir(dir)))
	fmt.Printf("serving %s at http://%s\n", dir, l.Addr())
	log.Fatal(http.Serve(l, nil))
}

// uploadPack answers a request of Git's protocol 2 with what git upload-pack prints.
func uploadPack(w http.ResponseWriter, r *http.Request, dir string, flags ...string) {
	args := append([]string{"upload-pack", "--stateless-rpc"}, flags...)
	cmd := exec.CommandContext(r.Context(), "git", append(args, filepath.Join(dir, r.PathValue("repository")))...)
	cmd.Env = append(os.Environ(), "GIT_PROTOCOL=version=2")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Body, w, os.Stderr
	if err := cmd.Run(); err != nil {
		log.Print(r.URL.Path, ": ", err)
	}
}
