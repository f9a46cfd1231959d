package job

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const tick = time.Second / 100 // USER_HZ, on all architectures

// A proc is a line of the system's table of processes.
type proc struct {
	pid, parent, group, session int
	dead                        bool   // a zombie whose last thread has ended: its children have another parent
	start                       uint64 // ticks since boot
	cpu                         time.Duration
}

// table returns all processes that can be seen.
func table() map[int]proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]proc, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := line(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// line reads one line of the table: proc_pid_stat(5).
func line(pid int) (proc, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := bytes.LastIndexByte(text, ')') // the name of the program may hold anything
	if err != nil || end < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 20 {
		return proc{}, false
	}
	number := func(field int) int64 { n, _ := strconv.ParseInt(string(fields[field-3]), 10, 64); return n }
	return proc{
		pid: pid, parent: int(number(4)), group: int(number(5)), session: int(number(6)),
		dead:  (fields[0][0] == 'Z' || fields[0][0] == 'X') && number(20) <= 1, // the first thread may end before the others
		start: uint64(number(22)),
		cpu:   time.Duration(number(14)+number(15)+number(16)+number(17)) * tick,
	}, true
}

// mark returns the job that a process says in its environment to be of; "" when
// it says nothing or may not be asked.
func mark(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	const key = "\x00" + Mark + "="
	text = append([]byte{0}, text...)
	i := bytes.LastIndex(text, []byte(key))
	if i < 0 {
		return ""
	}
	value, _, _ := bytes.Cut(text[i+len(key):], []byte{0})
	return string(value)
}

// memory returns the private memory of a process that is in use: proc_pid_statm(5).
func memory(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

// send sends signals to a process unless another has its ID by now.
func (p proc) send(signals ...unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if now, ok := line(p.pid); !ok || now.start != p.start {
		return
	}
	for _, s := range signals {
		if err != nil { // kernels before 5.3 have none
			_ = unix.Kill(p.pid, s)
			continue
		}
		_ = unix.PidfdSendSignal(fd, s, nil, 0)
	}
}
