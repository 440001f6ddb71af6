/* SPDX-License-Identifier: MIT */
/* A tool that NVTX loads: it keeps the last range of each kind of call. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

#define SEEN __attribute__((visibility("default")))

SEEN char nvtx_tool_domain[64], nvtx_tool_range[256];
SEEN int nvtx_tool_depth;

static struct nvtxDomainRegistration_st *create(const char *name)
{
    snprintf(nvtx_tool_domain, sizeof nvtx_tool_domain, "%s", name);
    return (struct nvtxDomainRegistration_st *)(void *)nvtx_tool_domain;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    (void)domain;
    snprintf(nvtx_tool_range, sizeof nvtx_tool_range, "%s", attributes->message.ascii);
    return nvtx_tool_depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    return --nvtx_tool_depth;
}

/* NVTX looks for it by this name. */
SEEN int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
