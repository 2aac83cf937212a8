package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// family starts and reaps every process of the container. The first process of a container inherits the orphans of all
// others (containerd's shims are made that way), and one that waits for any child would take away the exit status that
// os/exec waits for. So nothing here uses os/exec: one loop reaps, and tells whoever started the process.
type family struct {
	mutex   sync.Mutex // held while a process is started, so that its end cannot be seen before its name is known
	members map[int]*member
	fail    context.CancelCauseFunc // called when a part that must stay ends
}

type member struct {
	name   string
	log    string
	stays  bool // whether its end is the end of the cluster
	ended  chan struct{}
	status unix.WaitStatus
}

func newFamily(fail context.CancelCauseFunc) *family {
	f := &family{members: map[int]*member{}, fail: fail}
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, unix.SIGCHLD)
	go func() {
		for range childEnded {
			f.reap()
		}
	}()
	return f
}

// reap collects all processes that have ended: signals of the same kind may have been merged into one.
func (f *family) reap() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for {
		var status unix.WaitStatus
		id, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if id <= 0 {
			return
		}
		child, known := f.members[id]
		if !known || (!status.Exited() && !status.Signaled()) {
			continue // an orphan
		}
		delete(f.members, id)
		child.status = status
		close(child.ended)
		if child.stays {
			f.fail(child.failure())
		}
	}
}

// start runs a part that must stay for as long as the cluster. Its output goes to /var/log/kube/NAME.log.
func (f *family) start(name string, argv ...string) error {
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()
	_, err = f.spawn(&member{name: name, stays: true}, nothing, argv)
	return err
}

// run waits for a command and makes its last lines part of the error if it fails.
func (f *family) run(ctx context.Context, name, input string, argv ...string) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.WriteString(writer, input) // a command that does not read its input ends with an error of its own
		_ = writer.Close()
	}()
	child, err := f.spawn(&member{name: name}, reader, argv)
	_ = reader.Close()
	if err != nil {
		return err
	}
	select {
	case <-child.ended:
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx))
	}
	if child.status != 0 {
		return child.failure()
	}
	return nil
}

func (f *family) spawn(child *member, input *os.File, argv []string) (*member, error) {
	child.log = filepath.Join(logFolder, child.name+".log")
	child.ended = make(chan struct{})
	output, err := os.OpenFile(child.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", child.name, err)
	}
	defer output.Close()

	f.mutex.Lock()
	defer f.mutex.Unlock()
	process, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Dir: "/", Env: os.Environ(), Files: []*os.File{input, output, output}})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", child.name, err)
	}
	f.members[process.Pid] = child
	_ = process.Release()
	return child, nil
}

// failure describes an end that nobody wanted.
func (m *member) failure() error {
	how := fmt.Sprintf("ended with status %d", m.status.ExitStatus())
	if m.status.Signaled() {
		how = "was ended by " + m.status.Signal().String()
	}
	return fmt.Errorf("%s %s; the last lines of %s:\n%s", m.name, how, m.log, lastLines(m.log, 15))
}

func lastLines(path string, count int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-count):]
	return "\t" + string(bytes.Join(lines, []byte("\n\t")))
}

// endAll kills every process of the container, Pods included; only the first process of a container may do this, for
// the kernel takes "all" to mean its process namespace. Nothing is left to be saved: the cluster ends with its container.
func endAll() { _ = unix.Kill(-1, unix.SIGKILL) }

// until repeats an attempt until it succeeds. The last refusal is part of the error, for it names what is missing.
func until(ctx context.Context, what string, attempt func() error) error {
	var refusal error
	for {
		if refusal = attempt(); refusal == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%s)", what, context.Cause(ctx), strings.TrimSpace(refusal.Error()))
		}
	}
}

// untilHealthy waits for the answer 200.
func untilHealthy(ctx context.Context, what, address string) error {
	return until(ctx, what, func() error {
		answer, err := http.Get(address)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}
