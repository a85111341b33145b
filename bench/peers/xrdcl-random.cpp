// Random reads of a file through XRootD's own C++ client, so many under way at once: what `weir io random root://` is compared with.
//
//   xrdcl-random URL BYTES DEPTH SECONDS      prints: {"reads_per_second": …, "cpu_seconds_per_read": …}
//
// Reads of the first second do not count. A read that fails ends the program.
#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClXRootDResponses.hh>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <sys/resource.h>

namespace {

XrdCl::File file;
uint64_t places;
uint32_t bytes;
std::atomic<uint64_t> completed{0};
std::atomic<uint32_t> under_way{0};
std::atomic<bool> stops{false};

double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](const timeval &time) { return time.tv_sec + time.tv_usec / 1e6; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

[[noreturn]] void fail(const char *what, const XrdCl::XRootDStatus &status) {
    std::fprintf(stderr, "xrdcl-random: %s: %s\n", what, status.ToString().c_str());
    std::_Exit(2);
}

// One of the reads that are under way: as one completes, the next is asked for.
class Reader : public XrdCl::ResponseHandler {
  public:
    explicit Reader(uint64_t seed) : draw(seed), buffer(bytes) {}

    void ask() {
        uint64_t offset = draw() % places * bytes;
        auto status = file.Read(offset, bytes, buffer.data(), this);
        if (!status.IsOK()) fail("read", status);
    }

    void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override {
        std::unique_ptr<XrdCl::XRootDStatus> whether(status);
        std::unique_ptr<XrdCl::AnyObject> what(response);
        if (!whether->IsOK()) fail("read", *whether);
        ++completed;
        if (stops) {
            --under_way;
            return;
        }
        ask();
    }

  private:
    std::mt19937_64 draw;
    std::vector<char> buffer;
};

} // namespace

int main(int count, char **words) {
    if (count != 5) {
        std::fprintf(stderr, "usage: xrdcl-random URL BYTES DEPTH SECONDS\n");
        return 2;
    }
    bytes = std::strtoul(words[2], nullptr, 10);
    uint32_t depth = std::strtoul(words[3], nullptr, 10);
    auto length = std::chrono::duration<double>(std::strtod(words[4], nullptr));
    auto status = file.Open(words[1], XrdCl::OpenFlags::Read);
    if (!status.IsOK()) fail("open", status);
    XrdCl::StatInfo *about = nullptr;
    status = file.Stat(false, about);
    if (!status.IsOK()) fail("stat", status);
    places = about->GetSize() / bytes;
    delete about;
    std::vector<std::unique_ptr<Reader>> readers;
    under_way = depth;
    for (uint32_t number = 0; number < depth; ++number) {
        readers.push_back(std::make_unique<Reader>(number));
        readers.back()->ask();
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    auto began = std::chrono::steady_clock::now();
    uint64_t before = completed;
    double cpu_before = cpu_seconds();
    std::this_thread::sleep_for(length);
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    double reads = static_cast<double>(completed - before);
    double cpu = cpu_seconds() - cpu_before;
    stops = true;
    while (under_way > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = file.Close();
    std::printf("{\"reads_per_second\": %.1f, \"cpu_seconds_per_read\": %.9f}\n", reads / took.count(), cpu / reads);
    return 0;
}
